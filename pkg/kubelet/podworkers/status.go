package podworkers

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/events"
)

// SetRunningAtStart records the pods that the runtime ran when the agent started. Such a pod counts as running until
// the status cache has an entry for it. Call it before the first update: the cache is filled pod by pod, and updates
// may arrive before that is done.
func (w *Workers) SetRunningAtStart(pods []*kubecontainer.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range pods {
		w.runningAtStart.Insert(pod.ID)
	}
}

// runtimeStopped is true when, by the status cache, no container or sandbox of the pod runs. Workers.mu must be held.
func (w *Workers) runtimeStopped(uid types.UID) bool {
	status, err := w.cfg.PodCache.Get(uid)
	if err != nil || status == nil {
		return false
	}
	if len(status.ContainerStatuses)+len(status.SandboxStatuses) == 0 && w.runningAtStart.Has(uid) {
		return false
	}
	for _, container := range status.ContainerStatuses {
		if container.State == kubecontainer.ContainerStateRunning {
			return false
		}
	}
	for _, sandbox := range status.SandboxStatuses {
		if sandbox.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			return false
		}
	}
	return true
}

// statusResult is a result of the status cache.
type statusResult struct {
	status *kubecontainer.PodStatus
	err    error
}

// requestStatus requests a status newer than since. The caller need not receive the result.
func (w *Workers) requestStatus(uid types.UID, since time.Time) <-chan statusResult {
	result := make(chan statusResult, 1)
	go func() {
		status, err := w.cfg.PodCache.GetNewerThan(uid, since)
		result <- statusResult{status: status, err: err}
	}()
	return result
}

// statusNewerThan waits for a status that is newer than since, or for the end of ctx.
func (w *Workers) statusNewerThan(ctx context.Context, pod *v1.Pod, since time.Time) (*kubecontainer.PodStatus, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case result := <-w.requestStatus(pod.UID, since):
		return w.reportError(pod, result)
	}
}

// statusForTermination returns a status newer than the last sync, which may have started containers just before it was
// cancelled. It waits for such a status once, and at most for Config.StatusWait; then it returns the newest one. If the
// cache has an error, it returns the last status that was read without one: the termination reads the status from the
// runtime again.
func (w *Workers) statusForTermination(p *worker, j job) (*kubecontainer.PodStatus, error) {
	status, err := w.recentStatus(p, j)
	if err == nil {
		p.lastStatus = status
	} else if j.ctx.Err() == nil && p.lastStatus != nil {
		klog.FromContext(j.ctx).Error(err, "Failed to read the newest pod status, terminating the pod with an old one",
			"pod", p.name, "podUID", p.uid)
		return p.lastStatus, nil
	}
	return status, err
}

func (w *Workers) recentStatus(p *worker, j job) (*kubecontainer.PodStatus, error) {
	if p.statusAge.waited {
		return w.newestStatus(j.update.Pod)
	}
	limit := w.cfg.Clock.NewTimer(w.cfg.StatusWait)
	defer limit.Stop()
	select {
	case <-j.ctx.Done():
		return nil, j.ctx.Err()
	case result := <-w.requestStatus(p.uid, p.statusAge.lastSync):
		p.statusAge.waited = true
		return w.reportError(j.update.Pod, result)
	case <-limit.C():
		p.statusAge.waited = true
		klog.FromContext(j.ctx).Info("No newer pod status, terminating the pod with an old one", "pod", p.name, "podUID",
			p.uid, "waited", w.cfg.StatusWait)
		return w.newestStatus(j.update.Pod)
	}
}

func (w *Workers) newestStatus(pod *v1.Pod) (*kubecontainer.PodStatus, error) {
	status, err := w.cfg.PodCache.Get(pod.UID)
	return w.reportError(pod, statusResult{status: status, err: err})
}

// reportError returns a result of the status cache; it sends an event if that is an error of the runtime.
func (w *Workers) reportError(pod *v1.Pod, result statusResult) (*kubecontainer.PodStatus, error) {
	if result.err != nil {
		w.cfg.Recorder.Eventf(pod, v1.EventTypeWarning, events.FailedSync, "error determining status: %v", result.err)
		return nil, result.err
	}
	return result.status, nil
}
