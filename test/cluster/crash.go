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

// KillRuntime kills containerd by SIGKILL, as a crash would. Containers go on running.
func (c *Cluster) KillRuntime(ctx context.Context) error {
	return c.config.Layout.processes().Stop(ctx, processContainerd, 0)
}

// StopRuntime stops containerd by SIGTERM. Containers go on running.
func (c *Cluster) StopRuntime(ctx context.Context) error {
	return c.config.Layout.processes().Stop(ctx, processContainerd, stopGrace)
}

// RuntimeAlive returns whether the containerd that was started last still runs.
func (c *Cluster) RuntimeAlive() (bool, error) {
	proc, err := c.config.Layout.processes().Find(processContainerd)
	return proc.Alive(), err
}

// ReviveRuntime starts containerd again and waits until it serves. It has the containers and images of the one before.
func (c *Cluster) ReviveRuntime(ctx context.Context) error {
	return c.startAndWait(ctx, c.config.Layout.containerd(), c.runtimeReady)
}

// runtimeReady calls the CRI, as a kubelet does: containerd may serve its other interfaces although the CRI plugin
// failed to load.
func (c *Cluster) runtimeReady(ctx context.Context) error {
	runtime, err := c.Runtime(ctx)
	if err != nil {
		return err
	}
	_, err = runtime.Version(ctx, "")
	return errors.Join(err, runtime.Close(ctx))
}

// StopAPIServer stops the API server by SIGTERM. Client can be used again after ReviveAPIServer.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	if guest := c.config.Guest; guest != nil {
		return guest.control(ctx, controlStop)
	}
	return c.config.Layout.processes().Stop(ctx, processAPIServer, stopGrace)
}

// ReviveAPIServer starts the API server again, with the same objects, and waits until it serves. It restarts scheduler
// and controller manager, whose clients would otherwise wait for up to a minute before they connect again.
func (c *Cluster) ReviveAPIServer(ctx context.Context) error {
	if guest := c.config.Guest; guest != nil {
		return guest.control(ctx, controlRevive)
	}
	processes := c.config.Layout.processes()
	for _, name := range []string{processScheduler, processController} {
		if err := processes.Stop(ctx, name, 0); err != nil {
			return err
		}
	}
	return c.startAPIServer(ctx)
}

// ReviveKubelet starts the kubelet with its last configuration, and does not wait until the node is Ready.
func (c *Cluster) ReviveKubelet() error { return c.startKubelet() }

// KubeletAlive returns whether the kubelet that was started last still runs.
func (c *Cluster) KubeletAlive() (bool, error) {
	proc, err := c.config.Layout.processes().Find(processKubelet)
	return proc.Alive(), err
}

// KubeletLog is the file that every kubelet of this cluster appends its log to.
func (c *Cluster) KubeletLog() string { return c.config.Layout.processes().LogFile(processKubelet) }

// Runtime returns a new connection to containerd, for one goroutine. It can be used again after containerd was killed
// and started.
func (c *Cluster) Runtime(ctx context.Context) (internalapi.RuntimeService, error) {
	return runtimeService(klog.NewContext(ctx, klog.Logger{}), c.config.Layout)
}

// RunningTasks returns the ids of the containers and sandboxes of which containerd has a running process, also of those
// that its CRI does not know.
func (c *Cluster) RunningTasks(ctx context.Context) ([]string, error) {
	out, err := ctr(ctx, c.config.Layout, "tasks", "list")
	if err != nil {
		return nil, err
	}
	return runningTasks(out)
}

// runningTasks decodes the table that ctr prints: TASK, PID, STATUS.
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

// PodCgroups returns the cgroups of pods by the UID of the pod: the directories of each, one per hierarchy.
func (c *Cluster) PodCgroups() (map[string][]string, error) {
	return host.PodCgroups(c.config.podsCgroup())
}

// KubeletMounts returns the mount points at and below the kubelet's root directory, innermost first.
func (c *Cluster) KubeletMounts() ([]string, error) {
	return host.MountsUnder(c.config.Layout.KubeletRoot())
}
