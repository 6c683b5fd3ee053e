package policy

import (
	"cmp"
	"slices"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// candidate is a pod that may be evicted for a need, with its figures in the unit of the need.
type candidate struct {
	pod *snapshot.Pod
	// usage is meaningless when it is not known.
	usage, request int64
	// growth is how fast usage grows; nil except for memory.
	growth *rate
	// preference is what the pod wishes, spared that it opted out of what the need is about. Both only as far as granted.
	preference    int32
	spared, known bool
	// first: it must go before any pod that is not. The pod uses more than it asked for; for PIDs, of which nobody can ask
	// for any, far more than an equal share.
	first bool
	// slow: it is being stopped already, with more grace than the need can wait for.
	slow bool
}

// isWithin: the pod neither uses more than it asked for nor is being stopped.
func (c candidate) isWithin() bool { return !c.first && !c.slow }

// candidates are the pods that may be evicted for the need, in the order in which they would go.
func candidates(n *need, s *snapshot.Snapshot, p *pending, g *growth) []candidate {
	list := make([]candidate, 0, len(s.Pods))
	share := farAboveShare(n, s)
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Critical || p.busy[pod.UID] != 0 || (p.slow[pod.UID] && !n.hard) {
			continue
		}
		c := candidate{pod: pod, request: n.group.request(pod, s.Layout), growth: g.of(i), slow: p.slow[pod.UID]}
		c.usage, c.known = n.group.usage(pod, s.Layout)
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

// farAboveShare is how many PIDs a pod may hold before it goes first whatever its priority is: four times an equal
// share of all there are, and at most a quarter of them (kubernetes issue 89284: a fork bomb must not survive the pods
// it starves).
func farAboveShare(n *need, s *snapshot.Snapshot) int64 {
	if n.group != pidGroup || len(s.Pods) == 0 {
		return 0
	}
	total := s.Signals[snapshot.PIDAvailable].Capacity
	return min(total/4, total/int64(len(s.Pods))*4)
}

// rank orders candidates, the next victim first:
//
//  1. pods that are being stopped already, before others: to hasten them costs nobody who is to stay
//  2. pods that use more than they asked for (PIDs: far more than a share), before others
//  3. lower priority before higher
//  4. known usage before unknown: what is unknown is not the worst (kubernetes issue 123591)
//  5. greater preference before smaller, where the owner of the node lets pods have one
//  6. more usage above the request before less
//  7. the UID, so that the order is total and does not depend on that of the input
func rank(list []candidate) {
	slices.SortFunc(list, func(a, b candidate) int {
		switch {
		case a.slow != b.slow:
			return trueFirst(a.slow)
		case a.first != b.first:
			return trueFirst(a.first)
		case a.pod.Priority != b.pod.Priority:
			return cmp.Compare(a.pod.Priority, b.pod.Priority)
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

// trueFirst compares two values that differ.
func trueFirst(a bool) int {
	if a {
		return -1
	}
	return 1
}
