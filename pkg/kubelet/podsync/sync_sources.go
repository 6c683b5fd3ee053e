package podsync

import "context"

// registries are the managers that exist.
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

// registerSources makes known which secrets and config maps the pod uses. Not for a pod that is going: what it refers to must
// not be held once it is unregistered.
type registerSources struct {
	registries []PodRegistry
	lifecycle  Lifecycle
}

func (registerSources) Name() string { return "register sources" }

func (s registerSources) Run(_ context.Context, p *syncPass) (verdict, error) {
	if s.lifecycle.IsPodTerminationRequested(p.Pod.UID) {
		return proceed, nil
	}
	for _, r := range s.registries {
		r.RegisterPod(p.Pod)
	}
	return proceed, nil
}

// unregisterSources lets go of the secrets and config maps of a pod.
type unregisterSources struct{ registries []PodRegistry }

func (unregisterSources) Name() string { return "unregister sources" }

func (s unregisterSources) Run(_ context.Context, p *cleanUpPass) (verdict, error) {
	for _, r := range s.registries {
		r.UnregisterPod(p.pod)
	}
	return proceed, nil
}
