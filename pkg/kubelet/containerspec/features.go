package containerspec

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// Features are the feature gates that change what a container is started with.
type Features struct {
	// EnvFiles lets env entries read a key of a file in a volume (KEP-3721).
	EnvFiles bool
	// HostnameOverride lets a pod name its host freely (KEP-4762).
	HostnameOverride bool
	// ImageVolume lets a volume be an image (KEP-4639).
	ImageVolume bool
	// PodLevelResources makes the pod's limits the default of its containers' limits (KEP-2837).
	PodLevelResources bool
	// RecursiveReadOnlyMounts lets a mount be read-only with all that is mounted below it (KEP-3857).
	RecursiveReadOnlyMounts bool
}

// CurrentFeatures reads the process-wide feature gate. Call it once the gate is final.
func CurrentFeatures() Features {
	gate := utilfeature.DefaultFeatureGate
	return Features{
		EnvFiles:                gate.Enabled(features.EnvFiles),
		HostnameOverride:        gate.Enabled(features.HostnameOverride),
		ImageVolume:             gate.Enabled(features.ImageVolume),
		PodLevelResources:       gate.Enabled(features.PodLevelResources),
		RecursiveReadOnlyMounts: gate.Enabled(features.RecursiveReadOnlyMounts),
	}
}
