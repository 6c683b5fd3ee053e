package podsync

import "context"

// registries returns the managers of referenced objects, none without an API server.
func registries(c Config) []PodRegistry {
	var all []PodRegistry
	if c.Secrets != nil {
		all = append(all, c.Secrets)
	}
	if c.ConfigMaps != nil {
		all = append(all, c.ConfigMaps)
	}
	return all
}

// registerObjects registers the secrets and config maps of the pod. It skips a pod that is to be terminated: its
// objects must not be registered again after unregisterObjects.
type registerObjects struct {
	registries []PodRegistry
	lifecycle  Lifecycle
}

func (registerObjects) Name() string { return "register secrets and config maps" }

func (s registerObjects) Run(_ context.Context, p *syncPass) (stepResult, error) {
	if s.lifecycle.IsPodTerminationRequested(p.Pod.UID) {
		return nextStep, nil
	}
	for _, r := range s.registries {
		r.RegisterPod(p.Pod)
	}
	return nextStep, nil
}

// unregisterObjects unregisters the secrets and config maps of a pod.
type unregisterObjects struct{ registries []PodRegistry }

func (unregisterObjects) Name() string { return "unregister secrets and config maps" }

func (s unregisterObjects) Run(_ context.Context, p *cleanUpPass) (stepResult, error) {
	for _, r := range s.registries {
		r.UnregisterPod(p.pod)
	}
	return nextStep, nil
}
