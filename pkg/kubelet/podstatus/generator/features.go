package generator

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

// Features are the feature gates that matter to pod statuses.
type Features struct {
	podstatus.Features
	// ResourceHealthStatus adds the health of devices.
	ResourceHealthStatus bool
}

// FeaturesFromGates reads the process's feature gates. Call it after they have been set.
func FeaturesFromGates() Features {
	on := utilfeature.DefaultFeatureGate.Enabled
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
