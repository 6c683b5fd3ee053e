package podsync

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// startGrace is how long an operation of the runtime for a pod may continue after its termination was requested. That
// is enough to create a sandbox or a container. Operations that take longer are mostly postStart hooks that hang; with
// stock such a pod is never stopped.
const startGrace = 5 * time.Second

// runContainers calls the runtime manager to start and stop sandbox and containers, and stores the start errors of
// containers. The next steps evaluate its result.
type runContainers struct {
	starter     ContainerStarter
	lifecycle   Lifecycle
	startErrors StartErrors
	backOff     *flowcontrol.Backoff
	restartAll  bool
}

func (runContainers) Name() string { return StepRunContainers }

func (s runContainers) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	// The previous steps may have blocked for minutes. No container is started if the pod is to be terminated.
	if err := ctx.Err(); err != nil {
		return endPhase, err
	}
	if s.lifecycle.IsPodTerminationRequested(p.Pod.UID) {
		return endPhase, nil
	}
	p.restartAll = s.restartAll && slices.ContainsFunc(p.api.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.AllContainersRestarting && c.Status == v1.ConditionTrue
	})
	// ctx is extended because a start that is cancelled half-way would be stored as the container's start error.
	ctx, done := extend(ctx, startGrace)
	defer done()
	p.runtime = s.starter.SyncPod(ctx, p.Pod, p.Status, p.pullSecrets, s.backOff, p.restartAll)
	s.startErrors.Update(p.Pod.UID, p.runtime)
	return nextStep, nil
}

// extend returns a context that ends grace after ctx does. The returned function ends it at once and must be called.
func extend(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-longer.Done():
		case <-timer.C:
			cancel()
		}
	})
	return longer, func() {
		unlink()
		cancel()
	}
}

// requeueRestarted requests another synchronization of a pod whose containers were all removed for a restart
// (KEP-5532), since this one has only removed them. It does not loop: without containers the condition that causes the
// restart is false in the next synchronization.
type requeueRestarted struct {
	requeue func(ctx context.Context, pod, mirrorPod *v1.Pod)
}

func (requeueRestarted) Name() string { return "requeue after restart of all containers" }

func (s requeueRestarted) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	if !p.restartAll || p.runtime.Error() != nil {
		return nextStep, nil
	}
	removed := slices.ContainsFunc(p.runtime.SyncResults, func(r *kubecontainer.SyncResult) bool {
		return r.Action == kubecontainer.RemoveContainer && r.Error == nil
	})
	if removed {
		pod, mirror := p.Pod, p.MirrorPod
		p.afterSync(func() { s.requeue(context.WithoutCancel(ctx), pod, mirror) })
	}
	return nextStep, nil
}

// concludeSync returns the runtime's errors. After changes in the runtime it requests a relist, so that the new status
// is published without waiting for the PLEG's interval.
type concludeSync struct{ relist func(types.UID) }

func (concludeSync) Name() string { return "sync with the runtime" }

func (s concludeSync) Run(_ context.Context, p *syncPass) (stepResult, error) {
	if err := p.runtime.Error(); err != nil {
		return endPhase, err
	}
	if len(p.runtime.SyncResults) > 0 {
		uid := p.Pod.UID
		p.afterSync(func() { s.relist(uid) })
	}
	return endPhase, nil
}
