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

// Update is news about a pod, or the wish to stop it. What it points to must not be changed afterwards.
type Update struct {
	UpdateType kubetypes.SyncPodType
	// StartTime is when the news arrived at the agent, for a metric. Optional.
	StartTime time.Time
	// Pod is required unless RunningPod is given.
	Pod *v1.Pod
	// MirrorPod is the API server's copy of a static pod, nil if none.
	MirrorPod *v1.Pod
	// RunningPod is a pod that the runtime runs and no configuration has. Such pods can only be killed. Ignored when Pod
	// is given.
	RunningPod *kubecontainer.Pod
	// Kill are the terms of a kill. They are also taken from other updates of a pod that is terminating.
	Kill *KillOptions
}

// KillOptions are the terms on which a pod is to be stopped.
type KillOptions struct {
	// Completed, if not nil, is closed once no container of the pod runs any more; at once if that is so already. It is
	// not closed when the agent stops before.
	Completed chan<- struct{}
	// Evict is true when the pod is stopped to free resources: its content may be removed at once.
	Evict bool
	// Disruption, if not nil, is written into the status that is reported while the pod terminates. It counts only if this
	// request began the termination, or if the request that began it brought none.
	Disruption *podkill.Disruption
	// GracePeriod in seconds overrides the pod's own. It can shorten what was accepted before, never lengthen it.
	GracePeriod *int64
	// resumed is why an earlier run of the agent has begun the termination that this request goes on with, CauseNone if
	// there was none.
	resumed podlifecycle.Cause
}

// identity is who an update is about.
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

// factsOf returns what the lifecycle has to know of a pod.
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
