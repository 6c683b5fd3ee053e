package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// candidate is a pod that may be evicted for a need. Amounts are in the unit of the need.
type candidate struct {
	pod *snapshot.Pod
	// usage is valid only if known is true.
	usage, request int64
	// growth is how fast usage grows; nil except for memory, and if it is unknown.
	growth *rate
	// behind is how much older usage is than the observation from which the need follows, for a pod whose growth in the
	// last moments was measured; otherwise zero.
	behind time.Duration
	// priority is that of the pod. Ranking compares it most often.
	priority int32
	// preference is the value of the annotation. optedOut is true if the pod opted out of the resource of the need. Both
	// are zero unless Protection grants them.
	preference      int32
	optedOut, known bool
	// first: the pod is evicted before any that is not: it uses more than its request or, of PIDs, far more than an equal
	// share.
	first bool
	// hasten: the pod is already terminating, with a longer grace period than the need can wait for.
	hasten bool
}

// isWithin reports whether the pod neither exceeds its request nor is terminating.
func (c candidate) isWithin() bool { return !c.first && !c.hasten }

// candidates returns the pods that may be evicted for the need, in the order in which they would be.
func candidates(n *need, s *snapshot.Snapshot, p *pending, g *growth) []candidate {
	list := make([]candidate, 0, len(s.Pods))
	share := farAboveShare(n, s)
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Critical || p.excluded[pod.UID] != 0 || (p.hastenable[pod.UID] && !n.hard) {
			continue
		}
		c := candidate{
			pod: pod, priority: pod.Priority, request: n.group.request(pod, s.Layout), growth: g.of(i),
			hasten: p.hastenable[pod.UID],
		}
		c.usage, c.known = n.group.usage(pod, s.Layout)
		if n.group == memoryGroup {
			c.behind = behind(pod, s, n.signal)
		}
		if n.group == pidGroup {
			c.first = c.known && c.usage > share
		} else {
			c.first = c.known && c.usage > c.request
		}
		list = append(list, c)
	}
	rank(list)
	return list
}

// mostBehind limits what growth of the last moments says about the time after them.
const mostBehind = time.Second

// behind returns how much older the memory of a pod is than an observation, if the growth of the pod in the last
// moments was measured. What the pod has used since is part of what is missing by the observation: without it a pod
// that grows fast seems to release too little, and another one is evicted too.
func behind(pod *snapshot.Pod, s *snapshot.Snapshot, sig snapshot.Signal) time.Duration {
	if s.MemoryRate == nil || pod.MemoryRate == nil {
		return 0
	}
	at, observed := pod.Memory().At, s.Signals[sig].At
	if at.IsZero() || observed.IsZero() {
		return 0
	}
	return max(0, min(observed.Sub(at), mostBehind))
}

// farAboveShare returns the number of PIDs above which a pod is evicted before others of whatever priority: four times
// an equal share, and at most a quarter of all (kubernetes issue 89284: otherwise pods of lower priority are evicted
// before a fork bomb).
func farAboveShare(n *need, s *snapshot.Snapshot) int64 {
	if n.group != pidGroup || len(s.Pods) == 0 {
		return 0
	}
	total := s.Signals[snapshot.PIDAvailable].Capacity
	return min(total/4, total/int64(len(s.Pods))*4)
}

// rank sorts candidates, the next victim first:
//
//  1. pods that are already terminating, before others: shortening their grace period evicts no other pod
//  2. pods above their requests (PIDs: far above an equal share), before others
//  3. lower priority first
//  4. known usage before unknown: a pod without stats is not assumed to use most (kubernetes issue 123591)
//  5. greater preference first, where Protection grants one
//  6. more usage above the request first
//  7. the UID, so that the order is total and does not depend on that of the input
func rank(list []candidate) {
	slices.SortFunc(list, func(a, b candidate) int {
		switch {
		case a.hasten != b.hasten:
			return trueFirst(a.hasten)
		case a.first != b.first:
			return trueFirst(a.first)
		case a.priority != b.priority:
			return cmp.Compare(a.priority, b.priority)
		case a.known != b.known:
			return trueFirst(a.known)
		case a.preference != b.preference:
			return cmp.Compare(b.preference, a.preference)
		case a.usage-a.request != b.usage-b.request:
			return cmp.Compare(b.usage-b.request, a.usage-a.request)
		}
		return cmp.Compare(a.pod.UID, b.pod.UID)
	})
}

// trueFirst compares two values that differ; a is the first of them.
func trueFirst(a bool) int {
	if a {
		return -1
	}
	return 1
}
