package containerspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
)

// criPropagation translates the API's mount propagation; none is private.
func criPropagation(mode *v1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	if mode == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *mode {
	case v1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("invalid MountPropagation mode: %q", *mode)
}

// recursiveReadOnly returns whether everything that is mounted below the mount is read-only too (KEP-3857).
func (h *Helper) recursiveReadOnly(mount v1.VolumeMount, supported bool) (bool, error) {
	recursive, err := resolveRecursiveReadOnly(mount, supported)
	if err != nil {
		return false, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	if recursive && !h.cfg.Features.RecursiveReadOnlyMounts {
		return false, fmt.Errorf("recursive read-only mount needs feature gate %q to be enabled",
			features.RecursiveReadOnlyMounts)
	}
	return recursive, nil
}

// resolveRecursiveReadOnly is recursiveReadOnly without regard to the feature gate. Only a mount that is read-only and
// does not propagate can be recursively read-only.
func resolveRecursiveReadOnly(mount v1.VolumeMount, supported bool) (bool, error) {
	if mount.RecursiveReadOnly == nil {
		return false, nil
	}
	mode := *mount.RecursiveReadOnly
	propagates := mount.MountPropagation != nil && *mount.MountPropagation != v1.MountPropagationNone
	switch {
	case mode == v1.RecursiveReadOnlyDisabled:
		return false, nil
	case !mount.ReadOnly:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", mount.Name)
	case propagates:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q",
			mount.Name, *mount.MountPropagation)
	case mode == v1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case mode != v1.RecursiveReadOnlyEnabled:
		return false, fmt.Errorf("unknown recursive read-only mode %q", mode)
	case !supported:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime",
			mount.Name)
	}
	return true, nil
}

// supportsRecursiveReadOnly returns what the runtime reported for the pod's handler, false if that is unknown.
func (h *Helper) supportsRecursiveReadOnly(logger klog.Logger, pod *v1.Pod) bool {
	if h.cfg.RuntimeClasses == nil {
		return false
	}
	name, err := h.cfg.RuntimeClasses.LookupRuntimeHandler(pod.Spec.RuntimeClassName)
	if err != nil {
		logger.Error(err, "Failed to look up the runtime handler", "runtimeClassName", pod.Spec.RuntimeClassName)
		return false
	}
	handlers := h.cfg.RuntimeHandlers()
	for _, handler := range handlers {
		if handler.Name == name {
			return handler.SupportsRecursiveReadOnlyMounts
		}
	}
	if len(handlers) > 0 {
		logger.Error(nil, "Unknown runtime handler", "runtimeHandlerName", name)
	}
	return false
}
