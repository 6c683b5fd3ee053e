package podworkers

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// Terminations keeps what the agent has begun, over a restart. Its methods must not block: they are called under a
// lock.
type Terminations interface {
	// Save stores a record, in place of an earlier one of the same pod. It returns false if it cannot.
	Save(record terminations.Record) bool
	// Get returns the record of a pod, which may be one of an earlier run of the agent.
	Get(uid types.UID) (terminations.Record, bool)
	// DeleteFunc deletes the records for which del returns true.
	DeleteFunc(del func(terminations.Record) bool)
}

// recordedCauses are those of terminations that are kept. The others begin again by themselves: with the pod's
// deletion, with its absence from the configuration, or with its containers' end.
var recordedCauses = map[podlifecycle.Cause]terminations.Cause{
	podlifecycle.CauseEviction: terminations.Eviction,
	podlifecycle.CauseKill:     terminations.Kill,
	podlifecycle.CauseDeletion: terminations.Deletion,
}

// lifecycleCauses is causes the other way round.
var lifecycleCauses = map[terminations.Cause]podlifecycle.Cause{
	terminations.Eviction: podlifecycle.CauseEviction,
	terminations.Kill:     podlifecycle.CauseKill,
	terminations.Deletion: podlifecycle.CauseDeletion,
}

// IsPodTerminationRequested is true from the first request to stop the pod until it is forgotten, also if an earlier
// run of the agent has asked for it and the pod was not seen since. Such a pod must not be admitted anew. Not for
// clean-up loops.
func (w *Workers) IsPodTerminationRequested(uid types.UID) bool {
	if w.cfg.Store.IsPodTerminationRequested(uid) {
		return true
	}
	_, begun := w.earlierTermination(uid)
	return begun
}

// startMargin is how long after a request to stop a pod a sync that was under way may have started a container of it.
const startMargin = time.Minute

// earlierTermination returns what an earlier run of the agent has begun, for a pod that this one has not seen yet. It
// does not count when a container runs that was started since: then another kubelet was here in between, and went on
// with the pod.
func (w *Workers) earlierTermination(uid types.UID) (terminations.Record, bool) {
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

// resumeRequest returns the request to go on with what an earlier run of the agent has begun, if the first update of a
// pod is about such a one.
func (w *Workers) resumeRequest(update *Update) (Update, bool) {
	if update.Pod == nil || kubetypes.IsStaticPod(update.Pod) {
		return Update{}, false
	}
	record, begun := w.earlierTermination(update.Pod.UID)
	if !begun {
		// What was overtaken must not come back, nor stand in the way of a termination that this run begins.
		w.deleteTermination(update.Pod.UID)
		return Update{}, false
	}
	grace := record.Remaining(w.cfg.Clock.Now())
	kill := &KillOptions{Evict: record.Cause == terminations.Eviction, GracePeriod: &grace,
		resumed: lifecycleCauses[record.Cause]}
	// A terminal phase at the API server is final.
	if !podutil.IsPodPhaseTerminal(update.Pod.Status.Phase) {
		kill.Disruption = record.Disruption
	}
	return Update{UpdateType: kubetypes.SyncPodKill, Pod: update.Pod, MirrorPod: update.MirrorPod, Kill: kill}, true
}

// saveTermination has a termination survive a restart that the agent has asked for. earlier is the grace period in
// seconds before the update, 0 if none. Static pods are left out: their files want them still, so that the next run
// starts them again, as stock does; were they stopped instead, an API server among them would never come back.
func (w *Workers) saveTermination(p *worker, update *Update, state podlifecycle.State, earlier int64) {
	cause, may := recordedCauses[state.Termination.Cause]
	if !may || state.Phase != podlifecycle.Terminating || state.Static || update.Pod == nil {
		return
	}
	record, kept := w.cfg.Terminations.Get(p.uid)
	asked := update.Kill != nil && (cause != terminations.Deletion || shortened(earlier, p.grace.seconds))
	sooner := p.grace.deadline.Before(record.Deadline)
	amended := p.disruption != nil && record.Disruption == nil
	if kept && !sooner && !amended || !kept && !asked {
		return
	}
	if !kept {
		record = terminations.Record{
			UID: p.uid, Namespace: p.name.Namespace, Name: p.name.Name, Cause: cause, Requested: w.cfg.Clock.Now(),
			Deadline: p.grace.deadline,
		}
	}
	record.GracePeriodSeconds = state.Termination.Grace
	if sooner {
		record.Deadline = p.grace.deadline
	}
	if amended {
		record.Disruption = p.disruption
	}
	if !w.cfg.Terminations.Save(record) {
		klog.FromContext(p.ctx).Info("Too many terminations are kept already, this one will not survive a restart", "pod",
			p.name, "podUID", p.uid)
	}
}

// deleteOldTerminations forgets terminations that are over: the API server shows the end of the pod, or does not know
// it any more.
func (w *Workers) deleteOldTerminations(desired []*v1.Pod) {
	pods := make(map[types.UID]*v1.Pod, len(desired))
	for _, pod := range desired {
		pods[pod.UID] = pod
	}
	w.cfg.Terminations.DeleteFunc(func(r terminations.Record) bool {
		pod, configured := pods[r.UID]
		if !configured {
			return true
		}
		state, known := w.cfg.Store.State(r.UID)
		stopped := !known || state.Phase >= podlifecycle.Terminated
		return stopped && podutil.IsPodPhaseTerminal(pod.Status.Phase)
	})
}

// deleteTermination forgets the termination of a life that is over. Should the UID come again it is another life.
func (w *Workers) deleteTermination(uid types.UID) {
	w.cfg.Terminations.DeleteFunc(func(r terminations.Record) bool { return r.UID == uid })
}

// DeleteStaleTerminations forgets what earlier runs of the agent have begun of pods that run a container which was made
// since: another kubelet was here in between, and went on with them. running is what the runtime runs. It is for the
// time before any pod is seen; the status cache may still be empty when the first ones are.
func (w *Workers) DeleteStaleTerminations(running []*kubecontainer.Pod) {
	pods := make(map[types.UID]*kubecontainer.Pod, len(running))
	for _, pod := range running {
		pods[pod.ID] = pod
	}
	w.cfg.Terminations.DeleteFunc(func(r terminations.Record) bool {
		pod, runs := pods[r.UID]
		return runs && slices.ContainsFunc(pod.Containers, func(c *kubecontainer.Container) bool {
			return c.State == kubecontainer.ContainerStateRunning &&
				time.Unix(0, c.CreatedAt).After(r.Requested.Add(startMargin))
		})
	})
}
