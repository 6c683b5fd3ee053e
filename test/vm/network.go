package vm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/test/cluster"
)

const (
	// tap is the device of this machine's end of the link; the control plane has its address.
	tap            = "node0"
	controlAddress = "10.48.0.1"
	nodeAddress    = "10.48.0.2"
	linkBits       = "/24"
	// podNetwork is routed to the machine, so that programs in the namespace reach pods.
	podNetwork  = "10.45.0.0/20"
	kubeletPort = 10250
)

// network is the network namespace that the control plane and the virtual machine share. It has no way to anywhere
// else.
type network struct {
	name string
}

// newNetwork returns the network of the machine with that layout; it may not exist.
func newNetwork(layout cluster.Layout) network {
	digest := sha256.Sum256([]byte(layout.State))
	return network{name: fmt.Sprintf("plimsoll-vm-%x", digest[:4])}
}

func (n network) file() string { return filepath.Join("/run/netns", n.name) }

// create makes the namespace and the device.
func (n network) create() error {
	if err := run("ip", "netns", "add", n.name); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"tuntap", "add", "dev", tap, "mode", "tap"},
		{"address", "add", controlAddress + linkBits, "dev", tap},
		{"link", "set", tap, "up"},
		{"route", "add", podNetwork, "via", nodeAddress},
	} {
		if err := run("ip", append([]string{"-netns", n.name}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the namespace with its device, if it exists. No process may be left in it.
func (n network) remove() error {
	if _, err := os.Stat(n.file()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return run("ip", "netns", "delete", n.name)
}

// config is the network for package cluster.
func (n network) config() *cluster.Network {
	return &cluster.Network{
		Namespace: n.file(), Address: net.ParseIP(controlAddress), Node: net.ParseIP(nodeAddress),
		KubeletPort: kubeletPort, Dial: n.dial,
	}
}

// dial opens a connection from within the namespace. The address must have an IP address: a name would be resolved by
// other threads.
func (n network) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	if entered := n.within(func() { conn, err = (&net.Dialer{}).DialContext(ctx, network, address) }); entered != nil {
		return nil, entered
	}
	return conn, err
}

// listen listens in the namespace.
func (n network) listen(address string) (listener net.Listener, err error) {
	if entered := n.within(func() { listener, err = net.Listen("tcp", address) }); entered != nil {
		return nil, entered
	}
	return listener, err
}

// within calls a function whose system calls are made in the namespace, and waits until it returns.
func (n network) within(do func()) error {
	done := make(chan error, 1)
	// The goroutine ends with its thread locked, so that the thread, which is in another namespace, ends too.
	go func() {
		runtime.LockOSThread()
		err := n.enter()
		if err == nil {
			do()
		}
		done <- err
	}()
	return <-done
}

// enter moves the calling thread into the namespace for good.
func (n network) enter() error {
	namespace, err := os.Open(n.file())
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}
