package agentlife

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// relist is the PLEG: it lists the pods of the runtime, and sends events for changes.
func (a *agent) relist(ctx context.Context) {
	seen := map[types.UID]bool{}
	for ctx.Err() == nil {
		at := time.Now()
		if a.w.call(ctx, "relist") == nil {
			now := map[types.UID]bool{}
			for _, pod := range a.w.list() {
				now[pod.ID] = true
			}
			a.sendEvents(ctx, seen, now)
			seen = now
			a.cache.UpdateTime(at)
		}
		select {
		case <-ctx.Done():
		case <-time.After(relistPeriod):
		}
	}
}

func (a *agent) sendEvents(ctx context.Context, before, now map[types.UID]bool) {
	for _, m := range []map[types.UID]bool{before, now} {
		for uid := range m {
			if before[uid] == now[uid] {
				continue
			}
			a.cache.Set(uid, a.w.status(uid), nil, time.Now())
			kind := pleg.ContainerDied
			if now[uid] {
				kind = pleg.ContainerStarted
			}
			select {
			case <-ctx.Done():
			case a.events <- &pleg.PodLifecycleEvent{ID: uid, Type: kind, Data: "main"}:
			}
		}
	}
}

// Sync, Terminate, TerminateRuntimePod and CleanUp replace podsync.
func (a *agent) Sync(ctx context.Context, request podsync.SyncRequest) (podsync.SyncResult, error) {
	if err := a.w.call(ctx, "sync "+string(request.Pod.UID)); err != nil {
		return podsync.SyncResult{}, err
	}
	if a.recorded.Has(request.Pod.UID) {
		a.w.change(func() { a.w.fault("%s is started although it has a termination record", request.Pod.UID) })
	}
	if a.isTerminal(request.Pod.UID) {
		// A terminal phase is final.
		return podsync.SyncResult{Terminal: true}, nil
	}
	a.w.start(request.Pod)
	a.statuses.set(request.Pod.UID, v1.PodStatus{Phase: v1.PodRunning})
	return podsync.SyncResult{}, nil
}

func (a *agent) Terminate(ctx context.Context, request podsync.TerminateRequest) error {
	uid := request.Pod.UID
	if request.Disruption != nil {
		status := v1.PodStatus{Phase: v1.PodRunning}
		request.Disruption.Apply(&status)
		a.statuses.set(uid, status)
	}
	if err := a.w.call(ctx, "terminate "+string(uid)); err != nil {
		return err
	}
	return a.w.stop(ctx, uid, time.Duration(*request.GracePeriod)*time.Second)
}

func (a *agent) TerminateRuntimePod(ctx context.Context, pod *kubecontainer.Pod) error {
	if err := a.w.call(ctx, "terminate "+string(pod.ID)); err != nil {
		return err
	}
	return a.w.stop(ctx, pod.ID, time.Second)
}

func (a *agent) CleanUp(ctx context.Context, pod *v1.Pod, _ *kubecontainer.PodStatus) error {
	if err := a.w.call(ctx, "clean up "+string(pod.UID)); err != nil {
		return err
	}
	restarts := a.shutdown.RestartsAfterShutdown(pod)
	a.shutdown.PodStopped(pod.UID)
	status, _ := a.statuses.GetPodStatus(pod.UID)
	if !restarts && !kubetypes.IsStaticPod(pod) && status.Phase != v1.PodFailed {
		a.statuses.set(pod.UID, v1.PodStatus{Phase: v1.PodSucceeded})
	}
	return nil
}

// RunningStaticPods implements podworkers.EarlierStaticPods.
func (a *agent) RunningStaticPods(ctx context.Context, fullName string) ([]*kubecontainer.Pod, error) {
	if err := a.w.call(ctx, "static pods"); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(a.w.list(), func(p *kubecontainer.Pod) bool {
		return kubecontainer.BuildPodFullName(p.Name, p.Namespace) != fullName
	}), nil
}

// GetPods and ForceUpdateIfOlder implement housekeeping.RuntimeCache.
func (a *agent) GetPods(context.Context) ([]*kubecontainer.Pod, error) { return a.w.list(), nil }

func (a *agent) ForceUpdateIfOlder(ctx context.Context, _ time.Time) error {
	return a.w.call(ctx, "list")
}
