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

// Config is what a Syncer is made of. All fields are required unless their comment says otherwise; all must be safe for
// concurrent use.
type Config struct {
	// Generator computes the API status of a pod.
	Generator StatusGenerator
	// Statuses is the status manager, the only component that writes pod statuses.
	Statuses StatusManager
	// Runtime is the container runtime manager.
	Runtime Runtime
	// Stopper is the container runtime itself, for Hasten and for overdue pods.
	Stopper ContainerStopper
	// Processes kills processes of overdue pods; it is used only if CgroupsPerQOS is true.
	Processes PodProcesses
	// Escalation has the time limits of escalation steps; the zero value stands for escalation.DefaultLimits.
	Escalation escalation.Limits
	// Containers is the container manager: cgroups and dynamic resources.
	Containers ContainerManager
	// RepairFence restores the limits of a pod that an earlier run of the agent was evicting, or kills the pod if its
	// eviction goes on. It is called before each sync and each termination, and returns at once for all other pods; nil
	// repairs nothing.
	RepairFence func(ctx context.Context, pod *v1.Pod) error
	// CgroupsPerQOS is true if pods have cgroups of their own (--cgroups-per-qos).
	CgroupsPerQOS bool
	// Shutdown is the manager of node shutdown.
	Shutdown ShutdownManager
	// Lifecycle is the lifecycle of pods in the pod workers.
	Lifecycle Lifecycle
	// NetworkErrors returns why the network is not ready, nil if it is ready.
	NetworkErrors func() error
	// Secrets and ConfigMaps are the managers of objects that pods refer to. Both are nil without an API server.
	Secrets    SecretManager
	ConfigMaps PodRegistry
	// Mirrors creates and deletes mirror pods.
	Mirrors MirrorClient
	// Node returns this node from the informer, or an error while it is not registered.
	Node func(context.Context) (*v1.Node, error)
	// DataDirs creates the directories of a pod.
	DataDirs DataDirs
	// Volumes is the volume manager.
	Volumes Volumes
	// VolumePaths checks whether volumes of a pod are mounted.
	VolumePaths VolumePaths
	// UnmountsVolumes is false while the volume manager unmounts nothing, because not all sources of pods have reported.
	UnmountsVolumes func() bool
	// Probes is the probe manager.
	Probes Probes
	// StartErrors stores why containers could not be started.
	StartErrors StartErrors
	// UserNamespaces releases the user IDs of pods.
	UserNamespaces UserNamespaces
	// BackOff is the crash loop back-off of containers. Housekeeping removes its old entries.
	BackOff *flowcontrol.Backoff
	// Reject sets a pod's status to Failed with the reason, sends the event and counts the rejection.
	Reject func(ctx context.Context, pod *v1.Pod, reason, message string)
	// Requeue requests another synchronization of the pod from its worker. It must not block.
	Requeue func(ctx context.Context, pod, mirrorPod *v1.Pod)
	// Relist requests a relist of the pod from the PLEG. It must not block.
	Relist func(types.UID)
	// Recorder sends events.
	Recorder record.EventRecorderLogger
	// Tracer creates a span per phase; nil creates none.
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
	ReduceDefaultCrashLoopBackOffDecay   bool
	KubeletCrashLoopBackOffMax           bool
}

// FeaturesFrom reads the gates.
func FeaturesFrom(gates featuregate.FeatureGate) Features {
	on := gates.Enabled
	return Features{
		InPlacePodVerticalScaling:            on(features.InPlacePodVerticalScaling),
		ContainerRestartRules:                on(features.ContainerRestartRules),
		RestartAllContainersOnContainerExits: on(features.RestartAllContainersOnContainerExits),
		DynamicResourceAllocation:            on(features.DynamicResourceAllocation),
		ReduceDefaultCrashLoopBackOffDecay:   on(features.ReduceDefaultCrashLoopBackOffDecay),
		KubeletCrashLoopBackOffMax:           on(features.KubeletCrashLoopBackOffMax),
	}
}
