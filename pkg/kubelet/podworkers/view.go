package podworkers

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// maxViews bounds a Listing. A node has a few hundred workers at most; more than this would be a defect that must not
// make it worse.
const maxViews = 2000

// stuckMargin is what the runtime may take beside the grace period before a termination counts as stuck. It equals the
// least time that whoever kills a pod waits for it.
const stuckMargin = minimumKillTimeout

// Listing is what can be seen of all pod workers at one time.
type Listing struct {
	Time time.Time `json:"time"`
	// Workers are in the order of namespace, name and UID.
	Workers []View `json:"workers"`
	// Omitted is how many workers are left out, because there are too many.
	Omitted int `json:"omitted,omitempty"`
}

// View is what can be seen of one pod worker. Of the pod's specification it holds the name, and what LastError repeats
// of it (ADR 12).
type View struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Static    bool      `json:"static"`
	Phase     string    `json:"phase"`
	// Operation is what the worker is doing, "none" if nothing.
	Operation string `json:"operation"`
	// WaitsFor says in words what has to happen before it goes on; empty when it has nothing to wait for.
	WaitsFor string `json:"waitsFor,omitempty"`
	Since    Since  `json:"since"`
	// Termination is nil as long as nobody has asked for the pod's end.
	Termination *TerminationView `json:"termination,omitempty"`
	// LastError is how the worker's last operation that failed did, nil if none has.
	LastError *ErrorView `json:"lastError,omitempty"`
}

// Since is when a pod's phases began; a time is left out as long as it has not come. Operation is when the present one
// began.
type Since struct {
	Seen       time.Time `json:"seen,omitzero"`
	Started    time.Time `json:"started,omitzero"`
	Requested  time.Time `json:"terminationRequested,omitzero"`
	Terminated time.Time `json:"terminated,omitzero"`
	Finished   time.Time `json:"finished,omitzero"`
	Operation  time.Time `json:"operation,omitzero"`
}

// TerminationView is how the end of a pod was asked for and how it goes.
type TerminationView struct {
	Cause string `json:"cause"`
	// GraceSeconds is the accepted grace period. Deadline is when it is over, counted from when it was accepted.
	GraceSeconds int64     `json:"gracePeriodSeconds"`
	Deadline     time.Time `json:"deadline,omitzero"`
	// Begun is true once no container is started any more.
	Begun bool `json:"begun"`
	// Hastened is true when somebody asked for an eviction or for less grace after the end had been asked for.
	Hastened bool `json:"hastened"`
	// Waiters is how many wait for the end of the containers.
	Waiters int `json:"waiters"`
	// Stuck is true when the containers should have ended by now.
	Stuck bool `json:"stuck"`
	// Overdue says what was done beyond asking the runtime, nil as long as nothing was.
	Overdue *OverdueView `json:"overdue,omitempty"`
}

// OverdueView is a pod that the runtime has not stopped in time (package escalation).
type OverdueView struct {
	// Since is when its grace period was over.
	Since time.Time `json:"since"`
	// Tried is the last thing that was done about it.
	Tried string `json:"tried"`
	// Left says in words what was left of it when somebody looked last, at the time of Seen.
	Left string    `json:"left"`
	Seen time.Time `json:"seen"`
}

func overdueView(o escalation.Overdue, found bool) *OverdueView {
	if !found {
		return nil
	}
	return &OverdueView{Since: o.Since, Tried: o.Rung.String(), Left: o.Facts.Summary(), Seen: o.Seen}
}

// ErrorView is how an operation failed.
type ErrorView struct {
	Time time.Time `json:"time"`
	// Message is the beginning of the error's text, one line of at most 4 KiB. It may repeat the pod's specification and
	// the output of hooks.
	Message string `json:"message"`
	// Failures counts failed operations since the last one that succeeded; 0 means that all is well again.
	Failures int `json:"failures"`
}

// Views shows all pod workers. It waits for no worker and not for the runtime. The pod workers are not locked while the
// listing is put in order.
func (w *Workers) Views() Listing {
	overdue := w.cfg.Overdue()
	listing := w.views()
	slices.SortFunc(listing.Workers, func(a, b View) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	if len(listing.Workers) > maxViews {
		listing.Omitted = len(listing.Workers) - maxViews
		listing.Workers = listing.Workers[:maxViews]
	}
	for _, v := range listing.Workers {
		if o, found := overdue[v.UID]; v.Termination != nil {
			v.Termination.Overdue = overdueView(o, found)
		}
	}
	return listing
}

// views shows all pod workers in no order.
func (w *Workers) views() Listing {
	w.mu.Lock()
	defer w.mu.Unlock()
	listing := Listing{Time: w.cfg.Clock.Now(), Workers: make([]View, 0, len(w.workers))}
	names := w.staticPods()
	for uid, p := range w.workers {
		if state, known := w.cfg.Store.State(uid); known {
			listing.Workers = append(listing.Workers, p.view(state, names.isBlocked(uid, state), listing.Time))
		}
	}
	return listing
}

// view shows one worker; blocked is true when another static pod of the same full name has to end before it may start.
func (p *worker) view(s podlifecycle.State, blocked bool, now time.Time) View {
	v := View{
		Namespace: p.name.Namespace, Name: p.name.Name, UID: p.uid, Static: s.Static,
		Phase: s.Phase.String(), Operation: s.Doing.String(), WaitsFor: p.waitReason(s, blocked),
		Since: Since{
			Seen: s.Times.Seen, Started: s.Times.Started, Requested: s.Times.Requested, Terminated: s.Times.Terminated,
			Finished: s.Times.Finished,
		},
		LastError: p.observed.failure.view(),
	}
	if s.Doing != podlifecycle.OpNone {
		v.Since.Operation = p.observed.began
	}
	if s.TerminationRequested() {
		v.Termination = &TerminationView{
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
