package vm

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"

	"github.com/plimsoll-project/plimsoll/test/cluster"
)

// keyPair is a key for SSH in the formats of its files.
type keyPair struct {
	private, public []byte
}

func newKeyPair() (keyPair, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("make key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return keyPair{}, fmt.Errorf("encode key: %w", err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return keyPair{}, fmt.Errorf("encode key: %w", err)
	}
	return keyPair{private: pem.EncodeToMemory(block), public: ssh.MarshalAuthorizedKey(key)}, nil
}

func userKeyFile(layout cluster.Layout) string { return filepath.Join(layout.State, "ssh.key") }

func knownHostsFile(layout cluster.Layout) string { return filepath.Join(layout.State, "ssh.hosts") }

// writeKeys makes a key of root and one of the machine for this run, and returns what the machine needs of them.
func writeKeys(layout cluster.Layout) (map[string]file, error) {
	user, err := newKeyPair()
	if err != nil {
		return nil, err
	}
	machine, err := newKeyPair()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(userKeyFile(layout), user.private, 0o600); err != nil {
		return nil, fmt.Errorf("write key: %w", err)
	}
	hosts := append([]byte(nodeAddress+" "), machine.public...)
	if err := os.WriteFile(knownHostsFile(layout), hosts, 0o644); err != nil {
		return nil, fmt.Errorf("write key: %w", err)
	}
	return map[string]file{
		"/root/.ssh/authorized_keys":    {user.public, 0o600},
		"/etc/ssh/ssh_host_ed25519_key": {machine.private, 0o600},
	}, nil
}
