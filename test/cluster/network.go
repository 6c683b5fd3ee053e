package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// Network is where a control plane serves whose node is another machine, such as a virtual one: a network namespace of
// this machine. Its addresses are its own, so that such a cluster runs beside others, with the same ports.
type Network struct {
	// Namespace is the file of the network namespace.
	Namespace string
	// Address is where the API server listens.
	Address net.IP
	// Node is the address of the node, where the API server connects to the kubelet.
	Node net.IP
	// KubeletPort is the port of the kubelet.
	KubeletPort int
	// Dial opens a connection from within the namespace.
	Dial DialFunc
}

// DialFunc opens connections, as net.Dialer.DialContext does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// StartControlPlane starts a cluster without its node: etcd, the API server, the scheduler and the controller manager,
// in config.Network. It first removes what an earlier cluster left in the same layout. The node's own credentials are
// the files that KubeletConfig and KubeletPair name. On error everything that was started is stopped again; the logs
// stay.
func StartControlPlane(ctx context.Context, config Config) (*Cluster, error) {
	if config.Log == nil {
		config.Log = io.Discard
	}
	if err := Clean(ctx, config.Layout, config.Log); err != nil {
		return nil, fmt.Errorf("clean up after an earlier cluster: %w", err)
	}
	c := &Cluster{config: config, machine: machine{nodeIP: config.Network.Node}}
	err := c.prepareControlPlane()
	if err == nil {
		err = c.startControlPlane(ctx)
	}
	if err == nil && config.Mirror != "" {
		err = c.startRegistry(ctx)
	}
	if err != nil {
		// The context may be what ended the start.
		return nil, errors.Join(err, Clean(context.WithoutCancel(ctx), config.Layout, config.Log))
	}
	return c, nil
}

// OpenControlPlane returns the cluster that StartControlPlane has started with config, or an error if none runs.
func OpenControlPlane(config Config) (*Cluster, error) {
	if config.Log == nil {
		config.Log = io.Discard
	}
	proc, err := config.Layout.processes().Find(processAPIServer)
	if err != nil {
		return nil, err
	}
	if !proc.Alive() {
		return nil, fmt.Errorf("no cluster runs in %s: no %s", config.Layout.State, processAPIServer)
	}
	c := &Cluster{config: config, machine: machine{nodeIP: config.Network.Node}}
	return c, c.connect()
}

// KubeletConfig is the kubeconfig of the node.
func (l Layout) KubeletConfig() string { return l.kubeconfig(userKubelet) }

// KubeletPair returns the files of the serving certificate of the node and of its key.
func (l Layout) KubeletPair() (cert, key string) {
	return l.pki(userKubelet + ".crt"), l.pki(userKubelet + ".key")
}

// Authority is the file of the certificate that has signed all others.
func (l Layout) Authority() string { return l.pki(pairAuthority + ".crt") }

// prepareControlPlane writes the files of the control plane.
func (c *Cluster) prepareControlPlane() error {
	layout := c.config.Layout
	for _, dir := range []string{layout.run(""), layout.config(""), layout.pki("")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	if err := layout.keepOldLogs(); err != nil {
		return err
	}
	if err := os.MkdirAll(layout.Logs, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := writeCredentials(c.config, c.machine.nodeIP); err != nil {
		return err
	}
	return c.connect()
}

// startProcess starts a process of the cluster in its network, or in a virtual machine in a scope of systemd.
func (c *Cluster) startProcess(command host.Command) (host.Process, error) {
	return c.config.Layout.processes().Start(c.config.inScope(c.config.inNetwork(command)))
}

// inScope returns a command that runs the same program in a scope of systemd. The process keeps its PID.
func (c Config) inScope(command host.Command) host.Command {
	if c.Guest != nil {
		command.Args = append([]string{"--scope", "--quiet", "--collect", "--", command.Path}, command.Args...)
		command.Path = "systemd-run"
	}
	return command
}

// inNetwork returns a command that runs the same program in the cluster's network. The process keeps its PID.
func (c Config) inNetwork(command host.Command) host.Command {
	if c.Network != nil {
		command.Args = append([]string{"--net=" + c.Network.Namespace, "--", command.Path}, command.Args...)
		command.Path = "nsenter"
	}
	return command
}

// address is where the API server listens.
func (c Config) address() string {
	if c.Network != nil {
		return c.Network.Address.String()
	}
	return loopback
}

// dial is nil for the network of this program.
func (c Config) dial() DialFunc {
	if c.Network != nil {
		return c.Network.Dial
	}
	return nil
}

func (c Config) kubeletPort() int {
	if c.Network != nil {
		return c.Network.KubeletPort
	}
	return portKubelet
}
