package podstatus

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// volumeMounts returns the status of a container's volume mounts (KEP-3857). The runtime has no names of volumes, so
// the mounts are taken from the specification once, and from the previous status later.
func (c *converter) volumeMounts(spec *v1.Container) []v1.VolumeMountStatus {
	var mounts []v1.VolumeMountStatus
	for i := range spec.VolumeMounts {
		m := &spec.VolumeMounts[i]
		s := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode, err := recursiveReadOnlyMode(m, c.RecursiveReadOnly)
			if err != nil {
				c.note(Note{
					Problem: true, Text: "Failed to resolve recursive read-only mode", Container: spec.Name, Volume: m.Name, Err: err,
				})
			}
			s.RecursiveReadOnly = &mode
		}
		mounts = append(mounts, s)
	}
	return mounts
}

// recursiveReadOnlyMode is the effective mode of a read-only mount: Enabled or Disabled. With an error it is Disabled.
func recursiveReadOnlyMode(m *v1.VolumeMount, supported bool) (v1.RecursiveReadOnlyMode, error) {
	requested := v1.RecursiveReadOnlyDisabled
	if m.RecursiveReadOnly != nil {
		requested = *m.RecursiveReadOnly
	}
	shared := m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone
	switch {
	case requested == v1.RecursiveReadOnlyDisabled:
		return v1.RecursiveReadOnlyDisabled, nil
	case shared:
		return v1.RecursiveReadOnlyDisabled,
			fmt.Errorf("mode %q is not compatible with mount propagation %q", requested, *m.MountPropagation)
	case requested == v1.RecursiveReadOnlyIfPossible && !supported:
		return v1.RecursiveReadOnlyDisabled, nil
	case requested == v1.RecursiveReadOnlyEnabled && !supported:
		return v1.RecursiveReadOnlyDisabled, errors.New("the runtime handler does not support recursive read-only mounts")
	case requested == v1.RecursiveReadOnlyEnabled, requested == v1.RecursiveReadOnlyIfPossible:
		return v1.RecursiveReadOnlyEnabled, nil
	default:
		return v1.RecursiveReadOnlyDisabled, fmt.Errorf("unknown recursive read-only mode %q", requested)
	}
}

// imageVolumes returns the names of the volumes whose source is an image; nil if their images are not reported.
func (g *generation) imageVolumes() sets.Set[string] {
	if !g.Features.ImageVolumeWithDigest {
		return nil
	}
	names := sets.New[string]()
	for i := range g.Pod.Spec.Volumes {
		if g.Pod.Spec.Volumes[i].Image != nil {
			names.Insert(g.Pod.Spec.Volumes[i].Name)
		}
	}
	return names
}

// setImageVolumeRefs sets the digested references of images that are mounted as volumes (KEP-5365). If a lookup fails,
// the reference of the previous status stays. The mounts of s must not be shared with another status, since their
// volume statuses are replaced.
func (c *converter) setImageVolumeRefs(s *v1.ContainerStatus, record *kubecontainer.Status) {
	for i := range s.VolumeMounts {
		m := &s.VolumeMounts[i]
		if !c.imageVolumes.Has(m.Name) {
			continue
		}
		ref, err := c.imageRef(record, m.Name)
		if err != nil {
			c.note(Note{
				Problem: true, Text: "Cannot get the digest of an image volume", Container: s.Name, Volume: m.Name, Err: err,
			})
			continue
		}
		m.VolumeStatus = &v1.VolumeStatus{Image: &v1.ImageVolumeStatus{ImageRef: ref}}
	}
}

func (c *converter) imageRef(record *kubecontainer.Status, volume string) (string, error) {
	i := slices.IndexFunc(record.Mounts, func(m kubecontainer.Mount) bool { return m.Name == volume && m.Image != nil })
	if i < 0 || record.Mounts[i].Image.Image == "" || c.Lookups.ImageRef == nil {
		return "", errors.New("image was not found")
	}
	return c.Lookups.ImageRef(record.Mounts[i].Image)
}
