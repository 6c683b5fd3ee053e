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

// SetRunningAtStart records what the runtime ran when the agent started. Until the status cache has an entry for such a
// pod, the pod counts as running. It must be called before the first pod is given to the workers: the cache is filled
// pod by pod, and the first ones come before that is done.
func (w *Workers) SetRunningAtStart(pods []*kubecontainer.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range pods {
		w.ranAtStart.Insert(pod.ID)
	}
}

// runtimeStopped is true when the runtime was last seen to run nothing of the pod. Workers.mu must be held.
func (w *Workers) runtimeStopped(uid types.UID) bool {
	status, err := w.cfg.PodCache.Get(uid)
	if err != nil || status == nil {
		return false
	}
	if len(status.ContainerStatuses)+len(status.SandboxStatuses) == 0 && w.ranAtStart.Has(uid) {
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

// statusResult is an answer of the status cache.
type statusResult struct {
	status *kubecontainer.PodStatus
	err    error
}

// requestStatus asks for a status that is newer than since. Whoever loses interest may just go; the answer is dropped
// then.
func (w *Workers) requestStatus(uid types.UID, since time.Time) <-chan statusResult {
	answer := make(chan statusResult, 1)
	go func() {
		status, err := w.cfg.PodCache.GetNewerThan(uid, since)
		answer <- statusResult{status: status, err: err}
	}()
	return answer
}

// statusNewerThan waits for a status that is newer than since, or for the end of ctx.
func (w *Workers) statusNewerThan(ctx context.Context, pod *v1.Pod, since time.Time) (*kubecontainer.PodStatus, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case answer := <-w.requestStatus(pod.UID, since):
		return w.reportError(pod, answer)
	}
}

// statusForTermination returns a status that is newer than the last sync, which may have started containers just before
// it was cancelled. It waits for it a limited time, and once only; then the newest known status must do.
func (w *Workers) statusForTermination(p *worker, j job) (*kubecontainer.PodStatus, error) {
	if p.statusAge.waited {
		return w.newestStatus(j.update.Pod)
	}
	limit := w.cfg.Clock.NewTimer(w.cfg.StatusWait)
	defer limit.Stop()
	select {
	case <-j.ctx.Done():
		return nil, j.ctx.Err()
	case answer := <-w.requestStatus(p.uid, p.statusAge.lastSync):
		p.statusAge.waited = true
		return w.reportError(j.update.Pod, answer)
	case <-limit.C():
		p.statusAge.waited = true
		klog.FromContext(j.ctx).Info("Terminating the pod with an old status, there is no newer one", "pod", p.name, "podUID",
			p.uid, "waited", w.cfg.StatusWait)
		return w.newestStatus(j.update.Pod)
	}
}

func (w *Workers) newestStatus(pod *v1.Pod) (*kubecontainer.PodStatus, error) {
	status, err := w.cfg.PodCache.Get(pod.UID)
	return w.reportError(pod, statusResult{status: status, err: err})
}

// reportError says so in an event when the runtime could not tell the status.
func (w *Workers) reportError(pod *v1.Pod, answer statusResult) (*kubecontainer.PodStatus, error) {
	if answer.err != nil {
		w.cfg.Recorder.Eventf(pod, v1.EventTypeWarning, events.FailedSync, "error determining status: %v", answer.err)
		return nil, answer.err
	}
	return answer.status, nil
}
