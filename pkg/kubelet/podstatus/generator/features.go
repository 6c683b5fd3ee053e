package generator

import (
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

// Features are the feature gates on which pod statuses depend.
type Features struct {
	podstatus.Features
	// ResourceHealthStatus adds the health of devices.
	ResourceHealthStatus bool
}

// FeaturesFrom reads the gates. They must be those of the process, which stock's helpers read themselves.
func FeaturesFrom(gates featuregate.FeatureGate) Features {
	on := gates.Enabled
	return Features{
		ResourceHealthStatus: on(features.ResourceHealthStatus),
		Features: podstatus.Features{
			ContainerRestartRules:                   on(features.ContainerRestartRules),
			RestartAllContainersOnContainerExits:    on(features.RestartAllContainersOnContainerExits),
			ChangeContainerStatusOnKubeletRestart:   on(features.ChangeContainerStatusOnKubeletRestart),
			ContainerStopSignals:                    on(features.ContainerStopSignals),
			ImageVolumeWithDigest:                   on(features.ImageVolumeWithDigest),
			InPlacePodLevelResourcesVerticalScaling: on(features.InPlacePodLevelResourcesVerticalScaling),
			PodLevelResources:                       on(features.PodLevelResources),
			PodReadyToStartContainersCondition:      on(features.PodReadyToStartContainersCondition),
		},
	}
}
