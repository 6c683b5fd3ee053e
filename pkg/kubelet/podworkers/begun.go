package podworkers

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// Terminations keeps what the agent has begun, over a restart. Its methods must not block: they are called under a lock.
type Terminations interface {
	// Save stores a record, in place of an earlier one of the same pod. It returns false if it cannot.
	Save(record terminations.Record) bool
	// Get returns the record of a pod, which may be one of an earlier run of the agent.
	Get(uid types.UID) (terminations.Record, bool)
	// DeleteFunc deletes the records for which del returns true.
	DeleteFunc(del func(terminations.Record) bool)
}

// causes are those of terminations that are kept. The others begin again by themselves: with the pod's deletion, with its absence from the
// configuration, or with its containers' end.
var causes = map[podlifecycle.Cause]terminations.Cause{
	podlifecycle.CauseEviction: terminations.Eviction,
	podlifecycle.CauseKill:     terminations.Kill,
	podlifecycle.CauseDeletion: terminations.Deletion,
}

// resumable is causes the other way round.
var resumable = map[terminations.Cause]podlifecycle.Cause{
	terminations.Eviction: podlifecycle.CauseEviction,
	terminations.Kill:     podlifecycle.CauseKill,
	terminations.Deletion: podlifecycle.CauseDeletion,
}

// IsPodTerminationRequested is true from the first request to stop the pod until it is forgotten, also if an earlier run of the agent has
// asked for it and the pod was not seen since. Such a pod must not be admitted anew. Not for clean-up loops.
func (w *Workers) IsPodTerminationRequested(uid types.UID) bool {
	if w.cfg.Store.IsPodTerminationRequested(uid) {
		return true
	}
	_, begun := w.begun(uid)
	return begun
}

// startMargin is how long after a request to stop a pod a sync that was under way may have started a container of it.
const startMargin = time.Minute

// begun returns what an earlier run of the agent has begun, for a pod that this one has not seen yet. It does not count when a container
// runs that was started since: then another kubelet was here in between, and went on with the pod.
func (w *Workers) begun(uid types.UID) (terminations.Record, bool) {
	if w.cfg.Terminations == nil {
		return terminations.Record{}, false
	}
	record, kept := w.cfg.Terminations.Get(uid)
	return record, kept && !w.startedAfter(uid, record.Requested.Add(startMargin))
}

// startedAfter is true when the runtime was last seen to run a container of the pod that was started after t.
func (w *Workers) startedAfter(uid types.UID, t time.Time) bool {
	status, err := w.cfg.PodCache.Get(uid)
	if err != nil || status == nil {
		return false
	}
	for _, c := range status.ContainerStatuses {
		if c.State == kubecontainer.ContainerStateRunning && c.StartedAt.After(t) {
			return true
		}
	}
	return false
}

// resumption returns the request to go on with what an earlier run of the agent has begun, if the first update of a pod is about such a one.
func (w *Workers) resumption(update *Update) (Update, bool) {
	if update.Pod == nil || kubetypes.IsStaticPod(update.Pod) {
		return Update{}, false
	}
	record, begun := w.begun(update.Pod.UID)
	if !begun {
		// What was overtaken must not come back, nor stand in the way of a termination that this run begins.
		w.forgetLife(update.Pod.UID)
		return Update{}, false
	}
	grace := record.Remaining(w.cfg.Clock.Now())
	kill := &KillOptions{Evict: record.Cause == terminations.Eviction, GracePeriod: &grace, resumed: resumable[record.Cause]}
	// A terminal phase at the API server is final.
	if !podutil.IsPodPhaseTerminal(update.Pod.Status.Phase) {
		kill.Disruption = record.Disruption
	}
	return Update{UpdateType: kubetypes.SyncPodKill, Pod: update.Pod, MirrorPod: update.MirrorPod, Kill: kill}, true
}
