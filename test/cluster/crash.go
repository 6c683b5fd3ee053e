package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// KillRuntime ends containerd by SIGKILL, as a crash would. Containers go on
// running.
func (c *Cluster) KillRuntime(ctx context.Context) error {
	return c.config.Layout.processes().Stop(ctx, processContainerd, 0)
}

// StopRuntime asks containerd to end. Containers go on running.
func (c *Cluster) StopRuntime(ctx context.Context) error {
	return c.config.Layout.processes().Stop(ctx, processContainerd, stopGrace)
}

// RuntimeAlive says whether the containerd that was started last still runs.
func (c *Cluster) RuntimeAlive() (bool, error) {
	proc, err := c.config.Layout.processes().Find(processContainerd)
	return proc.Alive(), err
}

// ReviveRuntime starts containerd again and waits until it answers. Its
// containers and images are those it had.
func (c *Cluster) ReviveRuntime(ctx context.Context) error {
	return c.startAndWait(ctx, c.config.Layout.containerd(), c.runtimeReady)
}

// runtimeReady asks containerd as a kubelet does: it answers others also when
// the part that kubelets talk to could not be loaded.
func (c *Cluster) runtimeReady(ctx context.Context) error {
	runtime, err := c.Runtime(ctx)
	if err != nil {
		return err
	}
	_, err = runtime.Version(ctx, "")
	return errors.Join(err, runtime.Close(ctx))
}

// StopAPIServer asks the API server to end. Client works again after ReviveAPIServer.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	return c.config.Layout.processes().Stop(ctx, processAPIServer, stopGrace)
}

// ReviveAPIServer starts the API server again and waits until it serves. Its objects are those it had.
func (c *Cluster) ReviveAPIServer(ctx context.Context) error {
	return c.startAndWait(ctx, c.config.Layout.apiServer(), c.apiServerReady)
}

// ReviveKubelet starts the kubelet with the configuration that it had, and does
// not wait for it.
func (c *Cluster) ReviveKubelet() error {
	_, err := c.config.Layout.processes().Start(c.kubelet())
	return err
}

// KubeletAlive says whether the kubelet that was started last still runs.
func (c *Cluster) KubeletAlive() (bool, error) {
	proc, err := c.config.Layout.processes().Find(processKubelet)
	return proc.Alive(), err
}

// KubeletLog is the file that every kubelet of this cluster appends its log to.
func (c *Cluster) KubeletLog() string { return c.config.Layout.processes().LogFile(processKubelet) }

// Runtime is a connection of its own to containerd, for one goroutine. It
// survives a containerd that is killed and started again.
func (c *Cluster) Runtime(ctx context.Context) (internalapi.RuntimeService, error) {
	return runtimeService(klog.NewContext(ctx, klog.Logger{}), c.config.Layout)
}

// RunningTasks are the ids of the containers and sandboxes in which containerd
// has a process, whether or not its CRI knows them.
func (c *Cluster) RunningTasks(ctx context.Context) ([]string, error) {
	out, err := ctr(ctx, c.config.Layout, "tasks", "list")
	if err != nil {
		return nil, err
	}
	return runningTasks(out)
}

// runningTasks reads the table that ctr writes: TASK, PID, STATUS.
func runningTasks(table string) ([]string, error) {
	var ids []string
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("list tasks: line %q, want three columns", line)
		}
		if i > 0 && fields[2] == "RUNNING" {
			ids = append(ids, fields[0])
		}
	}
	return ids, nil
}

// PodCgroups are the control groups of single pods that exist, by the UID of
// the pod: the folders of each, one per hierarchy.
func (c *Cluster) PodCgroups() (map[string][]string, error) {
	return host.PodCgroups(c.config.podsCgroup())
}

// KubeletMounts are the mount points at and below the kubelet's root directory,
// innermost first.
func (c *Cluster) KubeletMounts() ([]string, error) {
	return host.MountsUnder(c.config.Layout.KubeletRoot())
}
