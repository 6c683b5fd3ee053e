package podsync

import (
	"context"
	"sync"
	"time"

	crierror "k8s.io/cri-api/pkg/errors"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// cgroupKillTimeout is how long killed processes are waited for.
const cgroupKillTimeout = 5 * time.Second

// killContainers has the runtime kill the containers that run, beside whatever it is doing.
func (w *watch) killContainers(ctx context.Context) {
	if w.stopper == nil {
		return
	}
	for _, c := range w.status.ContainerStatuses {
		if c.State == kubecontainer.ContainerStateRunning {
			w.calls.begin(ctx, "kill container", c.ID.ID, func(ctx context.Context) error { return w.stopper.StopContainer(ctx, c.ID.ID, 0) })
		}
	}
}

func (w *watch) stopSandboxes(ctx context.Context) {
	if w.stopper == nil {
		return
	}
	for _, s := range w.status.SandboxStatuses {
		w.calls.begin(ctx, "stop sandbox", s.Id, func(ctx context.Context) error { return w.stopper.StopPodSandbox(ctx, s.Id) })
	}
}

// killCgroup kills what is in the pod's cgroup. The runtime's helpers outside of it see their containers end, if they live.
func (w *watch) killCgroup(ctx context.Context) {
	if err := w.look.cgroups.kill(ctx, w.target); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Processes of the pod could not be killed", "pod", klog.KObj(w.pod), "podUID", w.pod.UID)
	}
}

// calls are requests to the runtime that are in flight beside each other.
type calls struct {
	group    sync.WaitGroup
	mu       sync.Mutex
	inFlight map[string]bool
}

// begin makes a request unless the same is in flight. It does not wait for the answer.
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
			klog.FromContext(ctx).Error(err, "Request about an overdue pod failed", "request", what, "id", id)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.inFlight, key)
	})
}

func (c *calls) wait() { c.group.Wait() }
