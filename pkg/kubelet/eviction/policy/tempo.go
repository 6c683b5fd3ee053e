package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// tempo says how fast pods may be evicted for one need.
type tempo struct {
	// left is how much memory is available, coming how much is on its way, in bytes.
	left, coming int64
	// hurry: candidates grow so fast that memory is used up before a kill takes effect, so that there is no time to evict
	// one by one.
	hurry bool
	// notable is from how many bytes per second on growth of candidates is more than a fluctuation beside that of the
	// others.
	notable float64
	// growing: candidates have grown together in every window, and notably.
	growing bool
	// wait: a kill is under way or has failed a moment ago. Kills go one by one, so that each shows what it brings.
	wait bool
	// paced: memory goes mostly to what no candidate can give back, the system or critical pods. Evicting pods does not
	// end such growth, so that pods within their requests are evicted no faster than by stock.
	paced bool
	// due: the last eviction for the need is a monitoring period ago.
	due bool
}

// notableShare is the part of the others' growth below which that of candidates does not hurry anything: pods' use
// always goes up and down a little, and when memory has run out any rate would use up what is left.
const notableShare = 10

func (r *round) tempoOf(n *need, p *pending, list []candidate) tempo {
	now, timing := r.snapshot.Taken, &r.rules.Timing
	t := tempo{wait: r.mustWait(p), due: true, coming: p.amount}
	if n.group != memoryGroup {
		return t
	}
	t.left = r.snapshot.Signals[n.signal].Available
	for _, sig := range n.signals {
		t.left = min(t.left, r.snapshot.Signals[sig].Available)
	}
	candidates, others := r.split(n, p, list)
	t.hurry = n.hard && usedUp(t.left, candidates.worst(), timing.KillTime)
	t.notable = others.worst() / notableShare
	t.growing = candidates.steady() > 0 && together(list) >= t.notable
	// The worst of the others counts: a node that is full leaves no room to go on growing.
	t.paced = others.worst() > together(list) && !r.rules.dryRun
	if last := r.last.Needs[n.group].LastEviction; !last.IsZero() {
		t.due = now.Sub(last) >= timing.Period
	}
	return t
}

// split is how fast the candidates grow together, and how fast what no candidate can give back does: the system,
// critical pods, and pods that could not be stopped. A pod that is being stopped takes its own growth along and counts
// for neither.
func (r *round) split(n *need, p *pending, list []candidate) (candidates, others rate) {
	g := r.growthOf(n)
	candidates, others = unmeasured, unmeasured
	for i := range list {
		candidates.add(list[i].growth)
	}
	if n.has(snapshot.MemoryAvailable) {
		others = g.system
	}
	for i := range r.snapshot.Pods {
		if pod := &r.snapshot.Pods[i]; pod.Critical || p.busy[pod.UID] == uncounted {
			others.add(g.of(i))
		}
	}
	return candidates, others
}

// usedUp tells whether memory at a rate is used up within a time.
func usedUp(left int64, rate float64, within time.Duration) bool {
	return rate > 0 && float64(left) < rate*within.Seconds()
}

// mustWait: a kill that has failed brings the next victim, but a broken killer is not run through all pods in a moment.
func (r *round) mustWait(p *pending) bool {
	t, now := &r.rules.Timing, r.snapshot.Taken
	return (!p.newest.IsZero() && now.Sub(p.newest) < t.Patience) || (!p.failed.IsZero() && now.Sub(p.failed) < t.KillTime)
}

// now is the part of the chosen pods that is evicted in this round: the first one, and in a hurry as many as are needed
// to outlive the time a kill takes.
func (t *tempo) now(c choice, d demand) []candidate {
	now := c.pods[:min(1, len(c.pods))]
	if t.hurry {
		now = prefix(c.pods, c.urgent, d.killTime)
	}
	if !t.paced {
		return now
	}
	return t.atPace(now, c.urgent-d.base, d.killTime)
}

// atPace leaves out pods within their requests that would go for what is missing: only one of them may go in a
// monitoring period. In a hurry as many go as cover what the candidates themselves come to use until a kill takes
// effect, less what is on its way.
func (t *tempo) atPace(now []candidate, grown int64, killTime time.Duration) (kept []candidate) {
	slot := t.due && !t.wait
	open := saturatingAdd(grown, -t.coming)
	for i := range now {
		c := &now[i]
		switch {
		case !c.isWithin():
		case t.hurry && t.growing && (open > 0 || (c.growth.steady() >= t.notable &&
			usedUp(t.left, c.growth.steady(), killTime))):
		case slot:
			slot = false
		default:
			continue
		}
		kept, open = append(kept, *c), saturatingAdd(open, -c.gain(killTime))
	}
	return kept
}

// meanwhile is the pod that goes while all that were chosen have to await their turn because of their pace: the first
// of the ranking that exceeds its request. It was spared since it is not enough, and those that are enough cannot go
// yet.
func (t *tempo) meanwhile(list []candidate, killTime time.Duration) []candidate {
	if t.wait {
		return nil
	}
	for i := range list {
		if c := &list[i]; !c.isWithin() && !c.spared && c.gain(killTime) > 0 {
			return list[i : i+1]
		}
	}
	return nil
}

// prefix is the shortest part of the list, from its beginning, that covers the need; all of it when that does not.
func prefix(list []candidate, need int64, horizon time.Duration) []candidate {
	var sum int64
	for i := range list {
		if sum = saturatingAdd(sum, list[i].gain(horizon)); sum >= need {
			return list[:i+1]
		}
	}
	return list
}
