package podsync

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
)

// startGrace is how long the runtime may go on with what it does for a pod when its termination is requested. Sandboxes and containers are made in
// less. What takes longer is mostly a postStart hook that hangs, and would keep the pod from ever being stopped, as it does in stock.
const startGrace = 5 * time.Second

// runContainers has the runtime manager bring sandbox and containers in line with the pod, and keeps why containers did not
// start. What it did and what failed is judged by the steps after it.
type runContainers struct {
	starter    ContainerStarter
	lifecycle  Lifecycle
	reasons    StartReasons
	backOff    *flowcontrol.Backoff
	restartAll bool
}

func (runContainers) Name() string { return "run containers" }

func (s runContainers) Run(ctx context.Context, p *syncPass) (verdict, error) {
	// The steps before this one may have waited for minutes. Nothing is started once the pod is to go.
	if err := ctx.Err(); err != nil {
		return settled, err
	}
	if s.lifecycle.IsPodTerminationRequested(p.Pod.UID) {
		return settled, nil
	}
	p.restartAll = s.restartAll && slices.ContainsFunc(p.api.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.AllContainersRestarting && c.Status == v1.ConditionTrue
	})
	// Not interrupted at once from here on: a start that is broken off half-way would be remembered as the container's start error.
	ctx, done := outlive(ctx, startGrace)
	defer done()
	p.runtime = s.starter.SyncPod(ctx, p.Pod, p.Status, p.pullSecrets, s.backOff, p.restartAll)
	s.reasons.Update(p.Pod.UID, p.runtime)
	return proceed, nil
}

// outlive returns a context that ends grace after ctx does. The function that it returns ends it at once and must be called.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
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
