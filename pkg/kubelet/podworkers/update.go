package podworkers

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// Update is a new specification of a pod, a request to sync it again, or a request to stop it. The objects that it
// points to must not be modified afterwards.
type Update struct {
	UpdateType kubetypes.SyncPodType
	// StartTime is when the update arrived at the agent, for stock's metric pod_worker_duration_seconds. Optional.
	StartTime time.Time
	// Pod is required unless RunningPod is given.
	Pod *v1.Pod
	// MirrorPod is the API server's copy of a static pod, nil if none.
	MirrorPod *v1.Pod
	// RunningPod is a pod that the runtime runs and no configuration has. Such pods can only be killed. It is ignored when
	// Pod is given.
	RunningPod *kubecontainer.Pod
	// Kill are the options of a request to stop the pod. Other updates of a terminating pod may have them, too.
	Kill *KillOptions
}

// KillOptions are the options of a request to stop a pod.
type KillOptions struct {
	// Completed, if not nil, is closed once no container of the pod runs any more; at once if none runs already. It is not
	// closed when the agent stops first.
	Completed chan<- struct{}
	// Evict is true when the pod is stopped to free resources: its content may be removed once it has stopped.
	Evict bool
	// Disruption, if not nil, is written into the pod's status. Of all requests, that of the first with a disruption is
	// used, and only if the agent itself began the termination.
	Disruption *podkill.Disruption
	// GracePeriod in seconds overrides the pod's own. It can shorten an accepted grace period, never lengthen it.
	GracePeriod *int64
	// resumed is why an earlier run of the agent began the termination that this request resumes, CauseNone if it resumes
	// none.
	resumed podlifecycle.Cause
}

// identity identifies the pod of an update.
type identity struct {
	uid  types.UID
	name klog.ObjectRef
}

func (u Update) identity() identity {
	if u.Pod != nil {
		return identity{uid: u.Pod.UID, name: klog.KObj(u.Pod)}
	}
	return identity{uid: u.RunningPod.ID, name: klog.KRef(u.RunningPod.Namespace, u.RunningPod.Name)}
}

var updateTypes = map[kubetypes.SyncPodType]podlifecycle.UpdateType{
	kubetypes.SyncPodSync:   podlifecycle.UpdateSync,
	kubetypes.SyncPodUpdate: podlifecycle.UpdateChange,
	kubetypes.SyncPodCreate: podlifecycle.UpdateCreate,
	kubetypes.SyncPodKill:   podlifecycle.UpdateKill,
}

// factsOf returns the facts of a pod on which its lifecycle depends.
func factsOf(pod *v1.Pod) podlifecycle.PodFacts {
	return podlifecycle.PodFacts{
		FullName:      kubecontainer.BuildPodFullName(pod.Name, pod.Namespace),
		Static:        kubetypes.IsStaticPod(pod),
		Deleting:      pod.DeletionTimestamp != nil,
		Completed:     pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded,
		DeletionGrace: pod.DeletionGracePeriodSeconds,
		SpecGrace:     pod.Spec.TerminationGracePeriodSeconds,
	}
}

func optionalFacts(pod *v1.Pod) *podlifecycle.PodFacts {
	if pod == nil {
		return nil
	}
	facts := factsOf(pod)
	return &facts
}
