package podsync

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

// Config is everything a Syncer uses. All fields are required unless their comment says otherwise; everything given must be safe
// for use by many goroutines at once.
type Config struct {
	// Generator computes the API status of a pod.
	Generator StatusGenerator
	// Statuses is the status manager, the only writer of pod status.
	Statuses StatusManager
	// Runtime is the container runtime manager.
	Runtime Runtime
	// Stopper is the runtime itself, for Hasten and for pods that are overdue; nil if there is to be none.
	Stopper ContainerStopper
	// Processes are the processes of pods, for those that the runtime does not stop; nil if they are to be left to it.
	Processes PodProcesses
	// Escalation is when what is done about such pods; the zero value stands for escalation.DefaultLimits.
	Escalation escalation.Limits
	// Containers is the container manager: cgroups and dynamic resources.
	Containers ContainerManager
	// CgroupsPerQOS says that pods have cgroups of their own (--cgroups-per-qos).
	CgroupsPerQOS bool
	// Returning knows which pods start again with the machine; nil if none do.
	Returning Returning
	// Lifecycle tells whether a pod's termination was requested.
	Lifecycle Lifecycle
	// NetworkErrors says why the network is not ready, nil when it is.
	NetworkErrors func() error
	// Secrets and ConfigMaps keep what pods refer to up to date. Both may be nil (no API server).
	Secrets    SecretManager
	ConfigMaps PodRegistry
	// Mirrors writes mirror pods.
	Mirrors MirrorClient
	// Node returns this node as the API server knows it, or an error while it is not registered.
	Node func(context.Context) (*v1.Node, error)
	// DataDirs creates the directories of a pod.
	DataDirs DataDirs
	// Volumes is the volume manager.
	Volumes Volumes
	// VolumePaths tells whether volumes of a pod are left on disk.
	VolumePaths VolumePaths
	// Unmounting is false while the volume manager unmounts nothing because not every source of pods has reported; nil is always true.
	Unmounting func() bool
	// Probes is the probe manager.
	Probes Probes
	// Reasons keeps why containers could not be started.
	Reasons StartReasons
	// UserNamespaces gives back the UID range of a pod.
	UserNamespaces UserNamespaces
	// BackOff is the crash loop back-off of containers, shared with housekeeping, which forgets old entries.
	BackOff *flowcontrol.Backoff
	// Reject sets a pod's status to Failed with the reason, sends the event and counts the rejection.
	Reject func(ctx context.Context, pod *v1.Pod, reason, message string)
	// Requeue asks the worker of the pod to synchronize it again at once. It must not block.
	Requeue func(ctx context.Context, pod, mirrorPod *v1.Pod)
	// Relist asks the PLEG to look at the pod at once. It must not block.
	Relist func(types.UID)
	// Recorder sends events.
	Recorder record.EventRecorderLogger
	// Tracer makes a span per phase; nil makes none.
	Tracer trace.Tracer
	// Features are the gates that switch steps on.
	Features Features
}

// Features are the feature gates this package depends on.
type Features struct {
	InPlacePodVerticalScaling            bool
	ContainerRestartRules                bool
	RestartAllContainersOnContainerExits bool
	DynamicResourceAllocation            bool
}

// FeaturesFrom reads the gates.
func FeaturesFrom(gates featuregate.FeatureGate) Features {
	on := gates.Enabled
	return Features{
		InPlacePodVerticalScaling:            on(features.InPlacePodVerticalScaling),
		ContainerRestartRules:                on(features.ContainerRestartRules),
		RestartAllContainersOnContainerExits: on(features.RestartAllContainersOnContainerExits),
		DynamicResourceAllocation:            on(features.DynamicResourceAllocation),
	}
}
