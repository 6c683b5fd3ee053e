package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	internalapi "k8s.io/cri-api/pkg/apis"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// stopGrace is how long a part may take to stop after SIGTERM.
const stopGrace = 15 * time.Second

// Cluster is a cluster that this program or an earlier one has started. It is not safe for concurrent use.
type Cluster struct {
	config  Config
	machine machine
	client  kubernetes.Interface
	// runtime is connected when it is first needed.
	runtime internalapi.RuntimeService
	// started is what the last kubelet was started with, as kubeletInputs returns it; "" if Open found it running.
	started string
}

// Start starts a cluster and waits until its node is Ready. It first removes what an earlier cluster left in the same
// layout. On error everything that was started is stopped again; the logs stay.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if config.Log == nil {
		config.Log = io.Discard
	}
	if config.Guest != nil {
		config.CgroupRoot = cmp.Or(config.CgroupRoot, config.Guest.CgroupRoot)
	}
	if config.CgroupRoot == "/" {
		config.CgroupRoot = ""
	}
	if err := CheckMachine(); err != nil {
		return nil, fmt.Errorf("this machine cannot run a node: %w", err)
	}
	if err := Clean(ctx, config.Layout, config.Log); err != nil {
		return nil, fmt.Errorf("clean up after an earlier cluster: %w", err)
	}
	if err := CheckFree(config); err != nil {
		return nil, fmt.Errorf("cannot start a cluster now: %w", err)
	}
	c := &Cluster{config: config}
	if err := c.start(ctx); err != nil {
		// The context may be what ended the start.
		return nil, errors.Join(err, Clean(context.WithoutCancel(ctx), config.Layout, config.Log))
	}
	return c, nil
}

// Open returns the cluster that runs in the layout of config, or an error if none does. Config must be the one given to
// Start.
func Open(config Config) (*Cluster, error) {
	if config.Log == nil {
		config.Log = io.Discard
	}
	for _, name := range []string{processContainerd, processAPIServer} {
		proc, err := config.Layout.processes().Find(name)
		if err != nil {
			return nil, err
		}
		if !proc.Alive() {
			return nil, fmt.Errorf("no cluster runs in %s: no %s", config.Layout.State, name)
		}
	}
	c := &Cluster{config: config}
	var err error
	if c.machine, err = inspectMachine(config.Layout); err != nil {
		return nil, err
	}
	return c, c.connect()
}

// Stop stops the cluster and removes everything from the machine, except its logs.
func (c *Cluster) Stop(ctx context.Context) error {
	return Clean(ctx, c.config.Layout, c.config.Log)
}

// StopControlPlane ends the programs of the control plane. Stop must be called nevertheless.
func (c *Cluster) StopControlPlane(ctx context.Context) error {
	return stopControlPlane(ctx, c.config.Layout)
}

// Client is an administrator's client; nil in a standalone cluster.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Layout is where the cluster keeps its files.
func (c *Cluster) Layout() Layout { return c.config.Layout }

// PodMemory is how much memory all pods together may use, in bytes.
func (c *Cluster) PodMemory() int64 { return c.machine.podMemory() }

// StartKubelet starts the kubelet and waits until the node is Ready. Tune is applied to the configuration after the
// tuning of the cluster's configuration; nil changes nothing.
func (c *Cluster) StartKubelet(ctx context.Context, tune func(*kubeletv1beta1.KubeletConfiguration)) error {
	first := c.config.Tune
	defer func() { c.config.Tune = first }()
	c.config.Tune = Tuned(first, tune)
	if err := c.writeKubeletConfig(); err != nil {
		return err
	}
	since := time.Now()
	if err := c.startKubelet(); err != nil {
		return err
	}
	return c.waitForNode(ctx, since)
}

// StopKubelet stops the kubelet by SIGTERM. Pods go on running.
func (c *Cluster) StopKubelet(ctx context.Context) error {
	return c.config.Layout.processes().Stop(ctx, processKubelet, stopGrace)
}

// KillKubelet kills the kubelet by SIGKILL, as a crash would. Pods go on running.
func (c *Cluster) KillKubelet(ctx context.Context) error {
	return c.config.Layout.processes().Stop(ctx, processKubelet, 0)
}

// SetStandalone sets whether the next StartKubelet starts a kubelet without an API server.
func (c *Cluster) SetStandalone(standalone bool) { c.config.Standalone = standalone }

// RefreshKubelet restarts the kubelet if it has ended, or if its binary is newer than the process. Pods go on running.
// What reporter plugins need is installed if it is not there.
func (c *Cluster) RefreshKubelet(ctx context.Context) error {
	if c.config.controlPlane() {
		if err := c.installReporter(ctx); err != nil {
			return err
		}
	}
	proc, err := c.config.Layout.processes().Find(processKubelet)
	if err != nil {
		return err
	}
	if proc.Alive() && proc.Runs(c.config.Kubelet) {
		c.say("The cluster runs already, with this kubelet.")
		return nil
	}
	c.say("The cluster runs already; replacing its kubelet.")
	if err := c.StopKubelet(ctx); err != nil {
		return err
	}
	return c.StartKubelet(ctx, nil)
}

// ContainerdPID returns the PID of containerd.
func (c *Cluster) ContainerdPID() (int, error) {
	proc, err := c.config.Layout.processes().Find(processContainerd)
	return proc.PID, err
}

// KubeletPID returns the PID of the kubelet that was started last.
func (c *Cluster) KubeletPID() (int, error) {
	proc, err := c.config.Layout.processes().Find(processKubelet)
	return proc.PID, err
}

// Kubelet is the path of the kubelet that StartKubelet starts.
func (c *Cluster) Kubelet() string { return c.config.Kubelet }

// SetKubelet sets the path of the kubelet that the next StartKubelet starts.
func (c *Cluster) SetKubelet(path string) { c.config.Kubelet = path }

// SetKubeletEnv sets the variables that the next StartKubelet adds to the kubelet's environment.
func (c *Cluster) SetKubeletEnv(env []string) { c.config.KubeletEnv = env }

// SetKubeletArgs sets the flags that the next StartKubelet adds to those of every kubelet.
func (c *Cluster) SetKubeletArgs(args []string) { c.config.KubeletArgs = args }

func (c *Cluster) start(ctx context.Context) error {
	began := time.Now()
	if err := c.prepare(); err != nil {
		return err
	}
	c.say("Starting the real parts.")
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startRuntime(groupCtx) })
	if c.config.Mirror != "" {
		group.Go(func() error { return c.startRegistry(groupCtx) })
	}
	if c.config.controlPlane() {
		group.Go(func() error { return c.startControlPlane(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if c.config.RuntimeOnly {
		return nil
	}
	c.say("Starting the kubelet, waiting for the node to be Ready.")
	if err := c.StartKubelet(ctx, nil); err != nil {
		return err
	}
	c.say("Node %s is Ready after %s.", NodeName, time.Since(began).Round(time.Second))
	return nil
}

// prepare writes every file that the parts need. The footprint is written first, so that Clean can undo what follows.
func (c *Cluster) prepare() error {
	layout := c.config.Layout
	if err := os.MkdirAll(layout.run(""), 0o755); err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	if err := layout.keepOldLogs(); err != nil {
		return err
	}
	footprint := host.TakeFootprint()
	footprint.Cgroup, footprint.Shared = cmp.Or(c.config.rootCgroup(), c.config.podsCgroup()), c.config.CgroupRoot == ""
	if err := footprint.Save(layout.footprint()); err != nil {
		return err
	}
	if root := c.config.rootCgroup(); root != "" {
		if err := host.MakeCgroup(root); err != nil {
			return err
		}
	}
	if err := layout.makeDirs(); err != nil {
		return err
	}
	var err error
	if c.machine, err = inspectMachine(layout); err != nil {
		return err
	}
	if err := c.makeCredentials(); err != nil {
		return err
	}
	if err := writeContainerdConfig(c.config, c.machine); err != nil {
		return err
	}
	if !c.config.controlPlane() {
		return nil
	}
	return c.connect()
}

// startRuntime starts containerd and loads the images.
func (c *Cluster) startRuntime(ctx context.Context) error {
	layout := c.config.Layout
	if err := mountDisks(ctx, c.config); err != nil {
		return err
	}
	if guest := c.config.Guest; guest != nil {
		if err := guest.copyImages(ctx, layout); err != nil {
			return err
		}
		return c.startAndWait(ctx, layout.containerd(), c.runtimeReady)
	}
	if err := c.startAndWait(ctx, layout.containerd(), c.runtimeReady); err != nil {
		return err
	}
	return importImages(ctx, layout)
}

// makeCredentials writes the credentials of a new control plane, or takes those of the one that another machine runs.
func (c *Cluster) makeCredentials() error {
	if guest := c.config.Guest; guest != nil {
		return guest.copyCredentials(c.config.Layout)
	}
	return writeCredentials(c.config, c.machine.nodeIP)
}

func (c *Cluster) startControlPlane(ctx context.Context) error {
	if guest := c.config.Guest; guest != nil {
		return guest.control(ctx, controlAnew)
	}
	layout := c.config.Layout
	if _, err := c.startProcess(layout.etcd()); err != nil {
		return err
	}
	return c.startAPIServer(ctx)
}

// startAPIServer starts the API server, and when that serves its clients of the control plane.
func (c *Cluster) startAPIServer(ctx context.Context) error {
	layout := c.config.Layout
	if err := c.startAndWait(ctx, layout.apiServer(c.config.address()), c.apiServerReady); err != nil {
		return err
	}
	for _, command := range []host.Command{layout.scheduler(), layout.controllerManager()} {
		if _, err := c.startProcess(command); err != nil {
			return err
		}
	}
	return c.installReporter(ctx)
}

func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.config.Layout.AdminConfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	// Tests send many requests, and no other client competes with them.
	config.QPS, config.Burst = 200, 400
	config.Dial = c.config.dial()
	c.client, err = kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return nil
}

func (c *Cluster) say(format string, args ...any) {
	fmt.Fprintf(c.config.Log, format+"\n", args...)
}
