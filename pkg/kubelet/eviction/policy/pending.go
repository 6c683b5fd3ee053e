package policy

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// SilentPatience is for how long after its grace period a pod counts as stopping while the container runtime is silent.
// Within that time package escalation kills it without the runtime, after two and a half minutes with its default
// limits. Evicting another pod meanwhile frees nothing sooner, and is unnecessary if the first release suffices.
const SilentPatience = 3 * time.Minute

// exclusion is why a pod is not a candidate.
type exclusion uint8

const (
	// counted: the pod is terminating, and what it releases is part of pending.
	counted exclusion = iota + 1
	// uncounted: its kill has failed, or its termination is overdue.
	uncounted
)

// pending is what terminations in progress release for a need, in the unit of the need.
type pending struct {
	// amount is an upper bound, certain the part that comes free in any case: page cache of a pod may stay in memory.
	amount, certain int64
	// lastStarted is when the last of the counted pods was asked to stop, of those that release something or are stopped
	// for this need.
	lastStarted time.Time
	// lastFailed is when a kill last failed.
	lastFailed time.Time
	excluded   map[types.UID]exclusion
	// hastenable are the pods that terminate with a longer grace period than the need can wait for.
	hastenable map[types.UID]bool
}

// pendingFor returns what terminations in progress release for the need, those that this round begins for limits on
// local storage included. A hard need does not wait for a pod whose grace period ends later than a kill takes: such a
// pod is not counted, and is a candidate whose termination can be hastened (kubernetes issue 123872).
func (r *round) pendingFor(n *need) pending {
	p, s := pending{}, r.snapshot
	// At most one need begins evictions in a round, so that until then all victims are those of limits.
	limits := r.decision.Victims
	if len(s.InFlight) == 0 && len(limits) == 0 && !anyTerminating(s.Pods) {
		return p
	}
	p.excluded, p.hastenable = map[types.UID]exclusion{}, map[types.UID]bool{}
	pods := make(map[types.UID]*snapshot.Pod, len(s.Pods))
	for i := range s.Pods {
		pods[s.Pods[i].UID] = &s.Pods[i]
	}
	for i := range limits {
		p.expect(limits[i].Pod.UID, n.group.release(limits[i].Pod, s.Layout))
	}
	for i := range s.InFlight {
		if f := &s.InFlight[i]; p.excluded[f.UID] == 0 {
			r.addInFlight(n, &p, f, pods[f.UID])
		}
	}
	for i := range s.Pods {
		p.addTerminating(n, s, &s.Pods[i], r.rules)
	}
	return p
}

// maxWait returns the longest remaining grace period with which a pod that eviction does not stop still counts as
// pending. For a hard need that is the time that a kill takes, or the grace period of its victims if that is longer;
// for a soft one the grace period that a victim would have: evicting another pod would free nothing sooner.
func (n *need) maxWait(rules *Rules) time.Duration {
	const longest = math.MaxInt64 / int64(time.Second)
	limit := rules.MaxPodGracePeriodSeconds
	switch {
	case n.hard:
		return max(rules.Timing.KillTime, immediateGrace*time.Second)
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

// addInFlight adds one entry of the ledger; pod is nil if it is no longer active. A pod that is also terminating for
// another reason, such as its deletion, keeps its own deadline, even if the request to hasten it has failed.
//
// A pod that plugins have evicted is counted if it ends in time, and otherwise changes nothing: a need waits neither
// for the effect of such an eviction nor after its failure. Plugins could defer the node's own evictions otherwise, by
// evicting one small pod after the other.
func (r *round) addInFlight(n *need, p *pending, f *snapshot.InFlight, pod *snapshot.Pod) {
	s, t := r.snapshot, r.rules.Timing
	failed := f.State == snapshot.Failed
	if failed && !f.Requested && f.Changed.After(p.lastFailed) {
		p.lastFailed = f.Changed
	}
	switch {
	case overdue(s, f, t) && (pod == nil || !awaitsRuntime(s, f)) && (!failed || !n.endsInTime(pod, s, r.rules)):
		p.excluded[f.UID] = uncounted
	case f.State == snapshot.Stopping && (n.hard || f.Requested) && f.Deadline.Sub(s.Taken) > n.maxWait(r.rules):
		p.hastenable[f.UID] = true
	default:
		freed := n.group.expected(f.Expected)
		if pod != nil {
			// Stats of a disk leave out containers that have exited, whose files exist until the pod is cleaned up.
			now := n.group.release(pod, s.Layout)
			if now.known && (!n.group.disk() || now.amount > freed.amount) {
				freed = now
			}
		}
		if f.State == snapshot.Stopped && r.seenAfter(n, f.Changed) {
			freed = freed.withoutProcesses()
		}
		p.expect(f.UID, freed)
		if f.Requested {
			return
		}
		if g, ok := groupOf(f.Signal, s.Layout); freed.amount > 0 || (f.Signal != snapshot.NoSignal && ok && g == n.group) {
			p.lastStarted = snapshot.Later(p.lastStarted, f.Started)
		}
	}
}

// seenAfter reports whether all observations of the need's signals are later than t.
func (r *round) seenAfter(n *need, t time.Time) bool {
	return !slices.ContainsFunc(n.signals, func(sig snapshot.Signal) bool { return !r.taken(sig).After(t) })
}

// overdue reports whether a kill has failed or takes too long.
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

// awaitsRuntime reports whether a kill may be late because the container runtime is silent.
func awaitsRuntime(s *snapshot.Snapshot, f *snapshot.InFlight) bool {
	return s.RuntimeSilent && s.Taken.Sub(f.Deadline) < SilentPatience
}

// addTerminating adds a pod that is terminating for another reason than eviction. One that is overdue is no candidate:
// its eviction would ask for the same containers to be killed again, and the need would wait for it once more.
func (p *pending) addTerminating(n *need, s *snapshot.Snapshot, pod *snapshot.Pod, rules *Rules) {
	if pod.Terminating == nil || p.excluded[pod.UID] != 0 || p.hastenable[pod.UID] {
		return
	}
	switch deadline := pod.Terminating.Deadline; {
	case n.endsInTime(pod, s, rules):
		p.expect(pod.UID, n.group.release(pod, s.Layout))
	case deadline.IsZero() || deadline.After(s.Taken):
		p.hastenable[pod.UID] = true
	default:
		p.excluded[pod.UID] = uncounted
	}
}

// endsInTime reports whether the pod, which may be nil, is terminating for another reason than eviction and the need
// can wait for it. A late pod counts until patience has passed since its deadline, or SilentPatience while the
// container runtime is silent.
func (n *need) endsInTime(pod *snapshot.Pod, s *snapshot.Snapshot, rules *Rules) bool {
	if pod == nil || pod.Terminating == nil || pod.Terminating.Deadline.IsZero() {
		return false
	}
	patience := rules.Timing.Patience
	if s.RuntimeSilent {
		patience = max(patience, SilentPatience)
	}
	left := pod.Terminating.Deadline.Sub(s.Taken)
	return left <= n.maxWait(rules) && -left < patience
}

// expect counts a pod and what it releases.
func (p *pending) expect(uid types.UID, freed groupRelease) {
	p.excluded[uid] = counted
	p.amount = saturatingAdd(p.amount, max(0, freed.amount))
	p.certain = saturatingAdd(p.certain, max(0, min(freed.certain, freed.amount)))
}
