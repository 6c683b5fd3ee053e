package podsync

import (
	"context"
)

// addProbes starts the pod's probes, except for those that run already.
type addProbes struct{ probes Probes }

func (addProbes) Name() string { return "add probes" }

func (s addProbes) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	s.probes.AddPod(ctx, p.Pod)
	return nextStep, nil
}

// stopLivenessProbes ends the probes that would restart a container.
type stopLivenessProbes struct{ probes Probes }

func (stopLivenessProbes) Name() string { return "stop liveness probes" }

func (s stopLivenessProbes) Run(_ context.Context, p *terminatePass) (stepResult, error) {
	s.probes.StopLivenessAndStartup(p.Pod)
	return nextStep, nil
}

// removeProbes ends all probes of the pod and removes their results.
type removeProbes struct{ probes Probes }

func (removeProbes) Name() string { return "remove probes" }

func (s removeProbes) Run(_ context.Context, p *terminatePass) (stepResult, error) {
	s.probes.RemovePod(p.Pod)
	return nextStep, nil
}
