package containerspec

import (
	"k8s.io/component-base/featuregate"
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

// FeaturesFrom reads the gates.
func FeaturesFrom(gates featuregate.FeatureGate) Features {
	return Features{
		EnvFiles:                gates.Enabled(features.EnvFiles),
		HostnameOverride:        gates.Enabled(features.HostnameOverride),
		ImageVolume:             gates.Enabled(features.ImageVolume),
		PodLevelResources:       gates.Enabled(features.PodLevelResources),
		RecursiveReadOnlyMounts: gates.Enabled(features.RecursiveReadOnlyMounts),
	}
}
