package volumehost

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/volume"
)

// NewWrapperMounter returns a mounter for the volume inside another volume: secrets, config maps and the like are in an
// emptyDir. It does not modify the caller's volume.
func (h *Host) NewWrapperMounter(volName string, spec volume.Spec, pod *v1.Pod) (volume.Mounter, error) {
	wrapped := wrap(volName, spec)
	plugin, err := h.plugins.FindPluginBySpec(wrapped)
	if err != nil {
		return nil, fmt.Errorf("can't use volume plugins for %s: %w", wrapped.Name(), err)
	}
	mounter, err := plugin.NewMounter(wrapped, pod)
	if err != nil {
		return nil, fmt.Errorf("failed to instantiate mounter for volume: %s using plugin: %s with a root cause: %w",
			wrapped.Name(), plugin.GetPluginName(), err)
	}
	return mounter, nil
}

// NewWrapperUnmounter returns the unmounter for a volume of NewWrapperMounter.
func (h *Host) NewWrapperUnmounter(volName string, spec volume.Spec, podUID types.UID) (volume.Unmounter, error) {
	wrapped := wrap(volName, spec)
	plugin, err := h.plugins.FindPluginBySpec(wrapped)
	if err != nil {
		return nil, err
	}
	return plugin.NewUnmounter(wrapped.Name(), podUID)
}

// wrap returns the spec of the inner volume with its name. The prefix is stored on disk, for example in the names of
// the metadata directories of emptyDir.
func wrap(volName string, spec volume.Spec) *volume.Spec {
	if spec.Volume != nil {
		inner := *spec.Volume
		inner.Name = "wrapped_" + volName
		spec.Volume = &inner
	}
	return &spec
}
