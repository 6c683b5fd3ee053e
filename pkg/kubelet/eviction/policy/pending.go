package policy

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// SilentPatience is for how long after the end of its grace period a pod counts as being stopped while the container
// runtime does not answer. By then it is killed past the runtime, which takes two minutes and a half (package
// escalation with its default limits). Whoever were evicted meanwhile would die no sooner than the first one, and in
// vain if that is enough.
const SilentPatience = 3 * time.Minute

// busy says why a pod must not be chosen.
type busy uint8

const (
	// counted: it is being stopped, and what it gives back is part of what is pending.
	counted busy = iota + 1
	// uncounted: its kill has failed or takes too long.
	uncounted
)

// pending is what is on its way for a need.
type pending struct {
	// amount is what the counted pods give back at most, certain what they give back in any case: page cache that a pod
	// has filled may stay.
	amount, certain int64
	// newest is when the last of those was asked to stop that give something back or are stopped for this need.
	newest time.Time
	// failed is when a kill last failed.
	failed time.Time
	busy   map[types.UID]busy
	// slow are the pods that are being stopped with more grace than the need can wait for.
	slow map[types.UID]bool
}

// pendingFor sorts out what is in flight. A hard need does not wait for a pod that was given longer than a kill takes:
// such a pod is not counted, and may be chosen again to be hastened (kubernetes issue 123872). Pods that this round
// evicts for a limit of their own are in flight too.
func (r *round) pendingFor(n *need) pending {
	p, s := pending{}, r.snapshot
	// At most one need begins evictions in a round, so that until then all victims are those of limits.
	limits := r.decision.Victims
	if len(s.InFlight) == 0 && len(limits) == 0 && !anyTerminating(s.Pods) {
		return p
	}
	p.busy, p.slow = map[types.UID]busy{}, map[types.UID]bool{}
	pods := make(map[types.UID]*snapshot.Pod, len(s.Pods))
	for i := range s.Pods {
		pods[s.Pods[i].UID] = &s.Pods[i]
	}
	for i := range limits {
		p.expect(limits[i].Pod.UID, n.group.returns(limits[i].Pod, s.Layout))
	}
	for i := range s.InFlight {
		if f := &s.InFlight[i]; p.busy[f.UID] == 0 {
			r.addInFlight(n, &p, f, pods[f.UID])
		}
	}
	for i := range s.Pods {
		p.addTerminating(n, s, &s.Pods[i], r.rules)
	}
	return p
}

// near is how long a pod that somebody else stops may still take and be waited for: for a hard need as long as a kill
// takes, for a soft one as long as a victim of its own might. Such a victim would free nothing sooner.
func (n *need) near(rules *Rules) time.Duration {
	const longest = math.MaxInt64 / int64(time.Second)
	limit := rules.MaxPodGracePeriodSeconds
	switch {
	case n.hard:
		return rules.Timing.KillTime
	case limit < 0 || limit > longest:
		return math.MaxInt64
	}
	return max(rules.Timing.Patience, time.Duration(limit)*time.Second)
}

func anyTerminating(pods []snapshot.Pod) bool {
	for i := range pods {
		if pods[i].Terminating != nil {
			return true
		}
	}
	return false
}

// addInFlight sorts out one pod that was asked to stop; pod is nil if it is no active pod any more. One that others
// stop as well ends as they have asked it, also when the request to stop it sooner has failed.
func (r *round) addInFlight(n *need, p *pending, f *snapshot.InFlight, pod *snapshot.Pod) {
	s, t := r.snapshot, r.rules.Timing
	failed := f.State == snapshot.Failed
	if failed && f.Changed.After(p.failed) {
		p.failed = f.Changed
	}
	switch {
	case overdue(s, f, t) && (pod == nil || !awaitsRuntime(s, f)) && (!failed || !n.endsInTime(pod, s.Taken, r.rules)):
		p.busy[f.UID] = uncounted
	case f.State == snapshot.Stopping && n.hard && f.Deadline.Sub(s.Taken) > t.KillTime:
		p.slow[f.UID] = true
	default:
		back := n.group.expected(f.Expected)
		if pod != nil {
			if now := n.group.returns(pod, s.Layout); now.known {
				back = now
			}
		}
		if f.State == snapshot.Stopped && r.seenAfter(n, f.Changed) {
			back = back.withoutProcesses()
		}
		p.expect(f.UID, back)
		if g, ok := groupOf(f.Signal, s.Layout); back.amount > 0 || (f.Signal != snapshot.NoSignal && ok && g == n.group) {
			p.newest = later(p.newest, f.Started)
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// seenAfter reports whether all observations that the need is about are from after a time.
func (r *round) seenAfter(n *need, t time.Time) bool {
	return !slices.ContainsFunc(n.signals, func(sig snapshot.Signal) bool { return !r.taken(sig).After(t) })
}

// overdue tells whether a kill has failed or takes too long.
func overdue(s *snapshot.Snapshot, f *snapshot.InFlight, t Timing) bool {
	switch f.State {
	case snapshot.Failed:
		return true
	case snapshot.Stopped:
		return s.Taken.Sub(f.Changed) >= t.Patience
	case snapshot.Stopping:
	}
	return s.Taken.Sub(f.Deadline) >= t.Patience
}

// awaitsRuntime tells whether a kill is late for no fault of the pod's.
func awaitsRuntime(s *snapshot.Snapshot, f *snapshot.InFlight) bool {
	return s.RuntimeSilent && s.Taken.Sub(f.Deadline) < SilentPatience
}

// addTerminating counts a pod that somebody else is already stopping, when its end is near.
func (p *pending) addTerminating(n *need, s *snapshot.Snapshot, pod *snapshot.Pod, rules *Rules) {
	if pod.Terminating == nil || p.busy[pod.UID] != 0 || p.slow[pod.UID] {
		return
	}
	switch deadline := pod.Terminating.Deadline; {
	case n.endsInTime(pod, s.Taken, rules):
		p.expect(pod.UID, n.group.returns(pod, s.Layout))
	case deadline.IsZero() || deadline.After(s.Taken):
		p.slow[pod.UID] = true
	}
}

// endsInTime reports whether somebody else stops the pod, which may be nil, and its end is near. One that is late
// counts until patience is over.
func (n *need) endsInTime(pod *snapshot.Pod, now time.Time, rules *Rules) bool {
	if pod == nil || pod.Terminating == nil || pod.Terminating.Deadline.IsZero() {
		return false
	}
	left := pod.Terminating.Deadline.Sub(now)
	return left <= n.near(rules) && -left < rules.Timing.Patience
}

func (p *pending) expect(uid types.UID, back returns) {
	p.busy[uid] = counted
	p.amount = saturatingAdd(p.amount, max(0, back.amount))
	p.certain = saturatingAdd(p.certain, max(0, min(back.certain, back.amount)))
}
