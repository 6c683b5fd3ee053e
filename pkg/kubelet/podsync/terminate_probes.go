package podsync

import "context"

// stopLivenessProbes ends the probes that would restart a container.
type stopLivenessProbes struct{ probes Probes }

func (stopLivenessProbes) Name() string { return "stop liveness probes" }

func (s stopLivenessProbes) Run(_ context.Context, p *terminatePass) (verdict, error) {
	s.probes.StopLivenessAndStartup(p.Pod)
	return proceed, nil
}

// removeProbes ends all of the pod's probes and forgets their results.
type removeProbes struct{ probes Probes }

func (removeProbes) Name() string { return "remove probes" }

func (s removeProbes) Run(_ context.Context, p *terminatePass) (verdict, error) {
	s.probes.RemovePod(p.Pod)
	return proceed, nil
}
