package containerspec

import (
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
)

// Features are the feature gates that change the options of a container.
type Features struct {
	// EnvFiles allows env entries that read a key of a file in a volume (KEP-3721).
	EnvFiles bool
	// HostnameOverride allows any host name in a pod's spec (KEP-4762).
	HostnameOverride bool
	// ImageVolume allows images as volumes (KEP-4639).
	ImageVolume bool
	// PodLevelResources makes the pod's limits the default of its containers' limits (KEP-2837).
	PodLevelResources bool
	// RecursiveReadOnlyMounts allows mounts that are read-only with all that is mounted below them (KEP-3857).
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
