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

// Terminations records terminations, so that they are resumed after a restart of the agent. Its methods are called with
// Workers.mu held, so they must not block.
type Terminations interface {
	// Save stores a record, in place of an earlier one of the same pod. It returns false if it cannot.
	Save(record terminations.Record) bool
	// Get returns the record of a pod, which may be one of an earlier run of the agent.
	Get(uid types.UID) (terminations.Record, bool)
	// DeleteFunc deletes the records for which del returns true.
	DeleteFunc(del func(terminations.Record) bool)
}

// recordedCauses are the causes of terminations that are recorded. Terminations of other causes begin again after a
// restart without a record: the pod is not in the configuration, or its containers have ended.
var recordedCauses = map[podlifecycle.Cause]terminations.Cause{
	podlifecycle.CauseEviction: terminations.Eviction,
	podlifecycle.CauseKill:     terminations.Kill,
	podlifecycle.CauseDeletion: terminations.Deletion,
}

// lifecycleCauses is the inverse of recordedCauses.
var lifecycleCauses = map[terminations.Cause]podlifecycle.Cause{
	terminations.Eviction: podlifecycle.CauseEviction,
	terminations.Kill:     podlifecycle.CauseKill,
	terminations.Deletion: podlifecycle.CauseDeletion,
}

// IsPodTerminationRequested is true from the first request to stop the pod until the pod is removed. The request may be
// that of an earlier run of the agent: such a pod must not be admitted. Not for clean-up loops.
func (w *Workers) IsPodTerminationRequested(uid types.UID) bool {
	if w.cfg.Store.IsPodTerminationRequested(uid) {
		return true
	}
	_, found := w.earlierTermination(uid)
	return found
}

// startMargin is how long after a request to stop a pod a sync in progress may start a container of it.
const startMargin = time.Minute

// earlierTermination returns the termination record of a pod. It returns false if a container of the pod was started
// after the request: then another kubelet ran in the meantime and synced the pod, and the record is stale.
func (w *Workers) earlierTermination(uid types.UID) (terminations.Record, bool) {
	record, found := w.cfg.Terminations.Get(uid)
	return record, found && !w.startedAfter(uid, record.Requested.Add(startMargin))
}

// startedAfter is true when, by the status cache, a container of the pod runs that was started after t.
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

// resumeRequest returns the request that resumes a termination of an earlier run of the agent; update is the first one
// of its pod. It returns false if there is no such termination.
func (w *Workers) resumeRequest(update *Update) (Update, bool) {
	if update.Pod == nil || kubetypes.IsStaticPod(update.Pod) {
		return Update{}, false
	}
	record, found := w.earlierTermination(update.Pod.UID)
	if !found {
		// A stale record must neither be resumed later, nor keep saveTermination from recording a new termination.
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

// saveTermination records a termination that the agent has requested, or whose grace period it has shortened. earlier
// is the grace period in seconds before the update, 0 if none. Terminations of static pods are not recorded: their
// manifests are still there, so the next run of the agent starts them again, as stock does. If it stopped them instead,
// an API server that is a static pod would not be started again.
func (w *Workers) saveTermination(p *worker, update *Update, state podlifecycle.State, earlier int64) {
	cause, recorded := recordedCauses[state.Termination.Cause]
	if !recorded || state.Phase != podlifecycle.Terminating || state.Static || update.Pod == nil {
		return
	}
	record, found := w.cfg.Terminations.Get(p.uid)
	byAgent := update.Kill != nil && (cause != terminations.Deletion || shortened(earlier, p.grace.seconds))
	sooner := p.grace.deadline.Before(record.Deadline)
	amended := p.disruption != nil && record.Disruption == nil
	if found && !sooner && !amended || !found && !byAgent {
		return
	}
	if !found {
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
		klog.FromContext(p.ctx).Info("Too many termination records, this termination will not be resumed after a restart",
			"pod", p.name, "podUID", p.uid)
	}
}

// deleteOldTerminations deletes the records of terminations that have ended: the pod's phase at the API server is
// terminal, or the pod is not in the configuration any more.
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

// deleteTermination deletes the record of a pod. A pod that is created again with the UID must not be terminated by it.
func (w *Workers) deleteTermination(uid types.UID) {
	w.cfg.Terminations.DeleteFunc(func(r terminations.Record) bool { return r.UID == uid })
}

// DeleteStaleTerminations deletes the records of pods of which a container was created after the request: another
// kubelet ran in the meantime and synced the pods. running are the pods that the runtime runs. Call it before the first
// update, when the status cache may be empty.
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
