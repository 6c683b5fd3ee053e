package containerspec_test

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// makeStartable removes from a random pod what prevents the start of a container.
func makeStartable(pod *v1.Pod) {
	links := true
	spec := &pod.Spec
	if spec.EnableServiceLinks == nil {
		spec.EnableServiceLinks = &links
	}
	spec.Hostname = strings.ToLower(strings.ReplaceAll(spec.Hostname, "_", "-"))
	spec.Subdomain = strings.ReplaceAll(spec.Subdomain, " ", "-")
	if spec.HostnameOverride != nil {
		*spec.HostnameOverride = strings.ToLower(*spec.HostnameOverride)
	}
	c := &spec.Containers[0]
	c.EnvFrom = slices.DeleteFunc(c.EnvFrom, func(s v1.EnvFromSource) bool {
		return s.SecretRef != nil && s.SecretRef.Name == "forbidden" ||
			s.ConfigMapRef != nil && s.ConfigMapRef.Name == "forbidden"
	})
	for _, source := range c.EnvFrom {
		if source.SecretRef != nil {
			source.SecretRef.Optional = &links
		} else {
			source.ConfigMapRef.Optional = &links
		}
	}
	c.Env = slices.DeleteFunc(c.Env, func(e v1.EnvVar) bool { return e.ValueFrom != nil && !makeOptional(e.ValueFrom) })
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return !mountable(m) })
	c.VolumeDevices = slices.DeleteFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool {
		return d.Name == "data" || d.Name == "nowhere" || d.DevicePath[0] != '/'
	})
}

// makeOptional makes references optional and returns whether that suffices.
func makeOptional(source *v1.EnvVarSource) bool {
	optional := true
	switch {
	case source.FieldRef != nil:
		return source.FieldRef.FieldPath != "spec.bogus"
	case source.ResourceFieldRef != nil:
		return source.ResourceFieldRef.ContainerName != "nobody" && source.ResourceFieldRef.Resource != "limits.bogus"
	case source.ConfigMapKeyRef != nil:
		source.ConfigMapKeyRef.Optional = &optional
		return source.ConfigMapKeyRef.Name != "forbidden"
	case source.SecretKeyRef != nil:
		source.SecretKeyRef.Optional = &optional
		return source.SecretKeyRef.Name != "forbidden"
	}
	ref := source.FileKeyRef
	ref.Optional = &optional
	return ref.VolumeName == "data" && strings.HasSuffix(ref.Path, "env")
}

func mountable(m v1.VolumeMount) bool {
	switch {
	case slices.Contains([]string{"nowhere", "unmounted", "pathless", "artifact"}, m.Name):
		return m.Name == "artifact" && m.SubPathExpr == ""
	case slices.Contains([]string{"../out", "/absolute", "cannot-make", "cannot-bind", "there/../there"}, m.SubPath):
		return false
	case strings.Contains(m.SubPathExpr, "NOBODY"), m.SubPathExpr == "$(A)":
		return false
	case m.MountPropagation != nil && *m.MountPropagation == "Sideways":
		return false
	}
	return m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled ||
		m.ReadOnly && m.MountPropagation == nil && *m.RecursiveReadOnly == v1.RecursiveReadOnlyIfPossible
}
