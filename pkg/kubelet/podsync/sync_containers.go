package podsync

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
)

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
	// Not interrupted from here on: a start that is broken off half-way would be remembered as the container's start error.
	p.runtime = s.starter.SyncPod(context.WithoutCancel(ctx), p.Pod, p.Status, p.pullSecrets, s.backOff, p.restartAll)
	s.reasons.Update(p.Pod.UID, p.runtime)
	return proceed, nil
}
