package containerspec

import (
	"context"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// environment returns the variables of the container's specification, by name, then those of services that it does not
// override, by name. A value may refer with $(NAME) to services, to envFrom and to the env entries before it.
//
// Service variables are not part of the container's hash: a change of services does not restart containers.
func (h *Helper) environment(ctx context.Context, req request) ([]kubecontainer.EnvVar, error) {
	services, err := h.serviceEnvironment(req.pod)
	if err != nil {
		return nil, err
	}
	b := envBuilder{helper: h, request: req, objects: newObjectCache(h.cfg, req.pod.Namespace)}
	own, err := b.fromSources()
	if err != nil {
		return nil, err
	}
	lookup := expansion.MappingFuncFor(own, services)
	for _, entry := range req.container.Env {
		value, set, err := b.value(ctx, entry, lookup)
		if err != nil {
			return nil, err
		}
		if set {
			own[entry.Name] = value
		}
	}

	envs := appendSorted(make([]kubecontainer.EnvVar, 0, len(own)+len(services)), own)
	maps.DeleteFunc(services, func(name, _ string) bool { _, overridden := own[name]; return overridden })
	return appendSorted(envs, services), nil
}

// serviceEnvironment returns the variables of the services that are visible to the pod. It fails before the first list
// of services, because a container that is started before would never have KUBERNETES_SERVICE_HOST; except for static
// pods, which have to start without an API server.
func (h *Helper) serviceEnvironment(pod *v1.Pod) (map[string]string, error) {
	if pod.Spec.EnableServiceLinks == nil {
		return nil, errors.New("nil pod.spec.enableServiceLinks encountered, cannot construct envvars")
	}
	if h.cfg.Services == nil {
		return map[string]string{}, nil
	}
	if !kubetypes.IsStaticPod(pod) && !h.cfg.ServicesSynced() {
		return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
	}
	return serviceVariables(h.cfg.Services, pod.Namespace, *pod.Spec.EnableServiceLinks)
}

func appendSorted(envs []kubecontainer.EnvVar, values map[string]string) []kubecontainer.EnvVar {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		envs = append(envs, kubecontainer.EnvVar{Name: name, Value: values[name]})
	}
	return envs
}
