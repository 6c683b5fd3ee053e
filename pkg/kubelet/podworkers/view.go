package podworkers

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// maxViews bounds a list of workers. A node has a few hundred workers at most; a defect that leaves more must not make
// the page unbounded.
const maxViews = 2000

// stuckMargin is what the runtime may take beside the grace period before a termination counts as stuck. It equals the
// least time for which a kill request waits.
const stuckMargin = minimumKillTimeout

func overdueView(o escalation.Overdue, found bool) *debugv1alpha1.Overdue {
	if !found {
		return nil
	}
	return &debugv1alpha1.Overdue{Since: o.Since, Tried: o.Step.String(), Left: o.Facts.Summary(), Seen: o.Seen}
}

// Views shows all pod workers. It waits for no worker and not for the runtime. The pod workers are not locked while the
// listing is put in order.
func (w *Workers) Views() debugv1alpha1.PodWorkerList {
	overdue := w.cfg.Overdue()
	listing, details := w.views()
	slices.SortFunc(listing.Workers, func(a, b debugv1alpha1.PodWorker) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	if len(listing.Workers) > maxViews {
		listing.Omitted = len(listing.Workers) - maxViews
		listing.Workers = listing.Workers[:maxViews]
	}
	for _, v := range listing.Workers {
		if o, found := overdue[v.UID]; v.Termination != nil {
			v.Termination.Overdue = overdueView(o, found)
			if detail := details[v.UID]; detail != nil {
				v.Termination.Detail = strings.TrimSpace(detail())
			}
		}
	}
	return listing
}

// views shows all pod workers in no order, and returns the functions with the details of terminations, which are called
// without the lock.
func (w *Workers) views() (debugv1alpha1.PodWorkerList, map[types.UID]func() string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	listing := debugv1alpha1.PodWorkerList{
		Time: w.cfg.Clock.Now(), Workers: make([]debugv1alpha1.PodWorker, 0, len(w.workers)),
	}
	names, details := w.staticPods(), map[types.UID]func() string{}
	for uid, p := range w.workers {
		if p.disruption != nil {
			details[uid] = p.disruption.Detail
		}
		if state, known := w.cfg.Store.State(uid); known {
			listing.Workers = append(listing.Workers, p.view(state, w.blockedBy(names, uid, state), listing.Time))
		}
	}
	return listing, details
}

// Reasons why a pod may not start.
const (
	blockedByName    = "another pod of the same full name"
	blockedByRemoval = "the removal of what an earlier pod left"
)

// blockedBy returns why the pod may not start, empty if it may. Workers.mu must be held.
func (w *Workers) blockedBy(names staticPods, uid types.UID, s podlifecycle.State) string {
	switch {
	case s.Phase == podlifecycle.Known && w.removals[uid] > 0:
		return blockedByRemoval
	case names.isBlocked(uid, s):
		return blockedByName
	}
	return ""
}

// view shows one worker; blocked is the result of blockedBy.
func (p *worker) view(s podlifecycle.State, blocked string, now time.Time) debugv1alpha1.PodWorker {
	v := debugv1alpha1.PodWorker{
		Namespace: p.name.Namespace, Name: p.name.Name, UID: p.uid, Static: s.Static,
		Phase: s.Phase.String(), Operation: s.Operation.String(), WaitsFor: p.waitReason(s, blocked),
		Since: debugv1alpha1.PodWorkerTimes{
			Seen: s.Times.Seen, Started: s.Times.Started, Requested: s.Times.Requested, Terminated: s.Times.Terminated,
			Finished: s.Times.Finished,
		},
		LastError: p.observed.failure.view(),
	}
	if s.Operation != podlifecycle.OpNone {
		v.Since.Operation = p.observed.began
	}
	if s.TerminationRequested() {
		v.Termination = &debugv1alpha1.Termination{
			Cause: s.Termination.Cause.String(), GraceSeconds: s.Termination.Grace, Deadline: p.grace.deadline,
			Begun: s.Termination.Begun, Hastened: s.Termination.Hastened, Waiters: len(s.Waiters), Stuck: p.stuck(s, now),
		}
	}
	return v
}

// stuck is true when the pod's containers should have ended by now.
func (p *worker) stuck(s podlifecycle.State, now time.Time) bool {
	return s.Phase == podlifecycle.Terminating && !p.grace.deadline.IsZero() &&
		now.After(p.grace.deadline.Add(stuckMargin))
}

// staticPods are the pods that may stand in each other's way, by their full names.
type staticPods map[string]map[types.UID]podlifecycle.State

func (w *Workers) staticPods() staticPods {
	names := staticPods{}
	for uid := range w.workers {
		s, known := w.cfg.Store.State(uid)
		if !known || !s.Static || s.Phase == podlifecycle.Finished {
			continue
		}
		if names[s.FullName] == nil {
			names[s.FullName] = map[types.UID]podlifecycle.State{}
		}
		names[s.FullName][uid] = s
	}
	return names
}

// isBlocked is true when the pod has not started and another of its name has, or has been here longer.
func (n staticPods) isBlocked(uid types.UID, s podlifecycle.State) bool {
	if !s.Static || s.Phase != podlifecycle.Known {
		return false
	}
	for other, o := range n[s.FullName] {
		if other != uid && (o.Marks.Started || o.Times.Seen.Before(s.Times.Seen)) {
			return true
		}
	}
	return false
}
