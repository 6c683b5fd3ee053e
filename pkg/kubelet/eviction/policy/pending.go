package policy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// SilentPatience is for how long after the end of its grace period a pod counts as being stopped while the container runtime does
// not answer. By then it is killed past the runtime, which takes two minutes and a half (package escalation with its default limits).
// Whoever were evicted meanwhile would die no sooner than the first one, and in vain if that is enough.
const SilentPatience = 3 * time.Minute

// pending is what is on its way for a need.
type pending struct {
	// amount is what the counted pods give back at most, certain what they give back in any case: page cache that a pod has
	// filled may stay.
	amount, certain int64
	// newest is when the last of them was begun.
	newest time.Time
	// failed is when a kill last failed.
	failed time.Time
	// busy are the pods that must not be chosen: counted ones, those whose kill failed a moment ago, and those that take too long.
	busy map[types.UID]bool
	// slow are the pods that are being stopped with more grace than the need can wait for.
	slow map[types.UID]bool
}

// pendingFor sorts out what is in flight. A hard need does not wait for a pod that was given longer than a kill takes: such a
// pod is not counted, and may be chosen again to be hastened (kubernetes issue 123872).
func pendingFor(n *need, s *snapshot.Snapshot, t Timing) pending {
	p := pending{}
	if len(s.InFlight) == 0 && !anyTerminating(s.Pods) {
		return p
	}
	p.busy, p.slow = map[types.UID]bool{}, map[types.UID]bool{}
	pods := make(map[types.UID]*snapshot.Pod, len(s.Pods))
	for i := range s.Pods {
		pods[s.Pods[i].UID] = &s.Pods[i]
	}
	for i := range s.InFlight {
		p.addInFlight(n, s, &s.InFlight[i], pods[s.InFlight[i].UID], t)
	}
	for i := range s.Pods {
		p.addTerminating(n, s, &s.Pods[i], t)
	}
	return p
}

func anyTerminating(pods []snapshot.Pod) bool {
	for i := range pods {
		if pods[i].Terminating != nil {
			return true
		}
	}
	return false
}

func (p *pending) addInFlight(n *need, s *snapshot.Snapshot, f *snapshot.InFlight, pod *snapshot.Pod, t Timing) {
	if f.State == snapshot.Failed && f.Changed.After(p.failed) {
		p.failed = f.Changed
	}
	switch {
	case overdue(s, f, t) && (pod == nil || !awaitsRuntime(s, f)):
		p.busy[f.UID] = true
	case f.State == snapshot.Stopping && n.hard && f.Deadline.Sub(s.Taken) > t.KillTime:
		p.slow[f.UID] = true
	default:
		amount := n.group.released(f.Expected)
		certain := amount
		if n.group == memoryGroup {
			certain = int64(f.Expected.CertainMemory)
		}
		if pod != nil {
			if now, known := n.group.usage(pod, s.Layout); known {
				amount, certain = now, n.group.certain(pod, now)
			}
		}
		p.expect(f.UID, amount, certain, f.Started)
	}
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

// addTerminating counts pods that somebody else is already stopping, when their end is near.
func (p *pending) addTerminating(n *need, s *snapshot.Snapshot, pod *snapshot.Pod, t Timing) {
	if pod.Terminating == nil || p.busy[pod.UID] || p.slow[pod.UID] {
		return
	}
	left := pod.Terminating.Deadline.Sub(s.Taken)
	near := t.Patience
	if n.hard {
		near = t.KillTime
	}
	switch {
	case pod.Terminating.Deadline.IsZero() || left > near:
		p.slow[pod.UID] = true
	case -left < t.Patience:
		amount, _ := n.group.usage(pod, s.Layout)
		p.expect(pod.UID, amount, n.group.certain(pod, amount), time.Time{})
	}
}

func (p *pending) expect(uid types.UID, amount, certain int64, started time.Time) {
	p.busy[uid] = true
	p.amount = saturatingAdd(p.amount, max(0, amount))
	p.certain = saturatingAdd(p.certain, max(0, min(certain, amount)))
	if started.After(p.newest) {
		p.newest = started
	}
}
