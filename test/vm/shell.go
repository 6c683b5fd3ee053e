package vm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshAddress is where the machine's SSH server listens.
const sshAddress = nodeAddress + ":22"

// Run runs a command line in a shell of root in the machine, and returns what it writes. A command that fails is an
// error, which quotes the output.
func (n *Node) Run(ctx context.Context, command string) (string, error) {
	var out, errs bytes.Buffer
	if err := n.RunTo(ctx, command, &out, &errs); err != nil {
		return out.String(), fmt.Errorf("%w: %s%s", err, out.String(), errs.String())
	}
	return strings.TrimRight(out.String(), "\n"), nil
}

// RunTo is Run with the output written to out and errs, while the command runs.
func (n *Node) RunTo(ctx context.Context, command string, out, errs io.Writer) error {
	client, err := n.sshClient(ctx)
	if err != nil {
		return err
	}
	// A machine that has ended does not answer.
	stop := context.AfterFunc(ctx, n.closeSSH)
	defer stop()
	session, err := client.NewSession()
	if err != nil {
		n.closeSSH()
		return fmt.Errorf("open session in the machine: %w", err)
	}
	defer session.Close()
	session.Stdout, session.Stderr = out, errs
	if err := session.Run(command); err != nil {
		return fmt.Errorf("%q in the machine: %w", command, err)
	}
	return nil
}

// sshClient returns the connection to the machine. It is opened once: under emulation that takes seconds.
func (n *Node) sshClient(ctx context.Context) (*ssh.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ssh != nil {
		return n.ssh, nil
	}
	layout := n.config.Layout
	private, err := os.ReadFile(userKeyFile(layout))
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	hosts, err := knownhosts.New(knownHostsFile(layout))
	if err != nil {
		return nil, fmt.Errorf("read key of the machine: %w", err)
	}
	conn, err := n.network.dial(ctx, "tcp", sshAddress)
	if err != nil {
		return nil, fmt.Errorf("connect to the machine: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	n.ssh, err = newSSHClient(conn, &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: hosts,
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
	})
	return n.ssh, err
}

func newSSHClient(conn net.Conn, config *ssh.ClientConfig) (*ssh.Client, error) {
	client, channels, requests, err := ssh.NewClientConn(conn, sshAddress, config)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to the machine: %w", err)
	}
	return ssh.NewClient(client, channels, requests), nil
}

// closeSSH drops the connection, so that the next Run opens one, as after a restart of the machine.
func (n *Node) closeSSH() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ssh != nil {
		n.ssh.Close()
		n.ssh = nil
	}
}
