package podsync

import "context"

// addProbes starts the pod's probes; those that run already are left alone.
type addProbes struct{ probes Probes }

func (addProbes) Name() string { return "add probes" }

func (s addProbes) Run(ctx context.Context, p *syncPass) (verdict, error) {
	s.probes.AddPod(ctx, p.Pod)
	return proceed, nil
}
