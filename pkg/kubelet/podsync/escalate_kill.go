package podsync

import (
	"context"
	"sync"
	"time"

	crierror "k8s.io/cri-api/pkg/errors"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// cgroupKillTimeout limits the wait for killed processes.
const cgroupKillTimeout = 5 * time.Second

// killContainers requests the kill of running containers from the runtime, concurrently with other requests.
func (w *watch) killContainers(ctx context.Context) {
	for _, c := range w.status.ContainerStatuses {
		if c.State == kubecontainer.ContainerStateRunning {
			w.calls.begin(ctx, "kill container", c.ID.ID, func(ctx context.Context) error {
				return w.stopper.StopContainer(ctx, c.ID.ID, 0)
			})
		}
	}
}

func (w *watch) stopSandboxes(ctx context.Context) {
	for _, s := range w.status.SandboxStatuses {
		w.calls.begin(ctx, "stop sandbox", s.Id, func(ctx context.Context) error {
			return w.stopper.StopPodSandbox(ctx, s.Id)
		})
	}
}

// killCgroup kills the processes in the pod's cgroup. The runtime's shims, which are outside of it, report their end.
func (w *watch) killCgroup(ctx context.Context) {
	if err := w.inspector.cgroups.kill(ctx, w.target); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to kill processes of pod", "pod", klog.KObj(w.pod), "podUID", w.pod.UID)
	}
}

// calls are concurrent requests to the runtime.
type calls struct {
	group    sync.WaitGroup
	mu       sync.Mutex
	inFlight map[string]bool
}

// begin makes a request unless an equal one is in flight. It does not wait for the response.
func (c *calls) begin(ctx context.Context, what, id string, request func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := what + " " + id
	if c.inFlight[key] {
		return
	}
	c.inFlight[key] = true
	c.group.Go(func() {
		err := request(ctx)
		if err != nil && !crierror.IsNotFound(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Request for overdue pod failed", "request", what, "id", id)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.inFlight, key)
	})
}

func (c *calls) wait() { c.group.Wait() }
