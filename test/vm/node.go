package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// bootTimeout is how long the machine may take until its node is Ready, at the speed of this machine.
const bootTimeout = time.Minute

// Node is a node in a virtual machine, and its control plane. Its methods may be called from any goroutine.
type Node struct {
	config  Config
	network network
	cluster *cluster.Cluster
	factor  time.Duration

	// inUse is locked as long as this program uses the machine that it has started.
	inUse *os.File

	mu  sync.Mutex
	ssh *ssh.Client
}

// Start starts the control plane and the machine with image, and waits until the node is Ready. It first removes what
// an earlier machine left in the same layout, unless the program runs that has started it. On error everything that was
// started is stopped again; the logs stay.
func Start(ctx context.Context, config Config, image Image) (*Node, error) {
	if config.Log == nil {
		config.Log = io.Discard
	}
	inUse, err := lockLayout(config.Layout)
	if err != nil {
		return nil, err
	}
	if err := Clean(ctx, config.Layout, config.Log); err != nil {
		return nil, errors.Join(fmt.Errorf("clean up after an earlier machine: %w", err), inUse.Close())
	}
	n := &Node{config: config, network: newNetwork(config.Layout), factor: 1, inUse: inUse}
	if err := n.start(ctx, image); err != nil {
		// The context may be what ended the start.
		return nil, errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
	}
	return n, nil
}

// lockLayout returns a file that is locked until it is closed. It fails while another program uses a machine in the
// layout.
func lockLayout(layout cluster.Layout) (*os.File, error) {
	name := layout.State + ".lock"
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	lock, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the machine: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("another program uses the machine in %s: %w", layout.State, err)
	}
	return lock, nil
}

// Open returns the node that runs in the layout of config, or an error if none does. Config must be the one given to
// Start.
func Open(config Config) (*Node, error) {
	proc, err := processes(config.Layout).Find(processMachine)
	if err != nil {
		return nil, err
	}
	if !proc.Alive() {
		return nil, fmt.Errorf("no virtual machine runs in %s", config.Layout.State)
	}
	n := &Node{config: config, network: newNetwork(config.Layout), factor: emulationFactor}
	n.cluster, err = cluster.OpenControlPlane(n.clusterConfig())
	return n, err
}

// Clean removes everything that a machine in layout left behind: processes, network namespace, files. Only logs stay,
// and the image. If nothing was left, it does nothing.
func Clean(ctx context.Context, layout cluster.Layout, log io.Writer) error {
	return errors.Join(
		processes(layout).Stop(ctx, processMachine, stopGrace),
		cluster.Clean(ctx, layout, log),
		newNetwork(layout).remove(),
	)
}

// Stop stops the machine and its control plane and removes everything from this machine, except logs and the image.
func (n *Node) Stop(ctx context.Context) error {
	n.closeSSH()
	err := Clean(ctx, n.config.Layout, n.config.Log)
	if n.inUse != nil {
		err = errors.Join(err, n.inUse.Close())
	}
	return err
}

// Client is an administrator's client.
func (n *Node) Client() kubernetes.Interface { return n.cluster.Client() }

// Cluster is the control plane.
func (n *Node) Cluster() *cluster.Cluster { return n.cluster }

// Factor is by how much longer things may take in the machine than on this one.
func (n *Node) Factor() time.Duration { return n.factor }

// Network is where the control plane and the machine can be reached.
func (n *Node) Network() *cluster.Network { return n.network.config() }

func processes(layout cluster.Layout) host.Processes {
	return host.Processes{LogDir: layout.Logs, RunDir: layout.State}
}

func (n *Node) clusterConfig() cluster.Config {
	return cluster.Config{
		Layout: n.config.Layout, Network: n.network.config(), Mirror: n.config.Mirror, Log: n.config.Log,
	}
}

func (n *Node) start(ctx context.Context, image Image) error {
	layout := n.config.Layout
	n.say("Starting the control plane.")
	if err := n.network.create(); err != nil {
		return err
	}
	var err error
	if n.cluster, err = cluster.StartControlPlane(ctx, n.clusterConfig()); err != nil {
		return err
	}
	fast := accelerated(ctx, image.Kernel)
	if !fast {
		n.factor = emulationFactor
		n.say("This machine has no hardware acceleration that works: the virtual machine is emulated.")
	}
	keys, err := writeKeys(layout)
	if err != nil {
		return err
	}
	disk := filepath.Join(layout.State, "node.img")
	if err := writeNodeDisk(n.config, n.factor, keys, disk); err != nil {
		return err
	}
	if n.config.fillDisk != nil {
		if err := n.config.writeExtraDisk(); err != nil {
			return err
		}
	}
	n.say("Booting the machine.")
	began := time.Now()
	proc, err := processes(layout).Start(machineCommand(n.config, n.network, image, disk, fast))
	if err != nil {
		return err
	}
	follow := followConsole(consoleFile(layout), n.config.Console)
	defer follow()
	if err := n.waitForBoot(ctx, proc, began); err != nil {
		return err
	}
	n.say("It is up %s after it was switched on.", time.Since(began).Round(time.Second))
	if n.config.undisturbed {
		return n.keepUndisturbed(ctx, proc.PID)
	}
	return nil
}

// up is nil if the node is Ready and has reported that after since, or without a node if the machine can be reached.
func (n *Node) up(ctx context.Context, since time.Time) error {
	if n.config.fillDisk == nil {
		return n.Ready(ctx, since)
	}
	_, err := n.Run(ctx, "systemctl is-active multi-user.target")
	return err
}

// waitForBoot waits until the machine is up. It fails at once if the machine ends.
func (n *Node) waitForBoot(ctx context.Context, proc host.Process, since time.Time) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, bootTimeout*n.factor, true,
		func(ctx context.Context) (bool, error) {
			if last = n.up(ctx, since); last == nil {
				return true, nil
			}
			if !proc.Alive() {
				return false, errors.New("the machine ended")
			}
			return false, nil
		})
	if err == nil {
		return nil
	}
	layout := n.config.Layout
	console, _ := os.ReadFile(consoleFile(layout))
	log, _ := os.ReadFile(processes(layout).LogFile(processMachine))
	return fmt.Errorf("the machine is not up: %w; end of the machine's console:\n%s%s", errors.Join(err, last),
		tail(string(console)), log)
}

// Ready is nil if the condition Ready of the node is True and was confirmed after since, and the default namespace has
// its service account.
func (n *Node) Ready(ctx context.Context, since time.Time) error {
	return cluster.NodeReady(ctx, n.Client(), since)
}

func (n *Node) say(format string, args ...any) {
	fmt.Fprintf(n.config.Log, format+"\n", args...)
}
