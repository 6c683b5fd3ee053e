package eviction

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// gateFloor is the shortest sleep between two looks at counters, gateMet the one while a hard threshold is met.
	gateFloor = 2 * time.Millisecond
	gateMet   = 250 * time.Millisecond
	// rearm is how often amounts are worked out again: limits change, and the cgroup of all pods comes late.
	rearm = time.Minute
	// gateShare bounds what looking costs: after a look, sleep at least this many times as long as it took.
	gateShare = 50
)

// gate watches memory between the looks of the loop. It reads exact counters as often as the distance to the next
// threshold makes necessary: at the worst rate, half of the distance is left when it looks again. It belongs to the
// loop.
type gate struct {
	reader MemoryReader
	// period is the longest sleep, worst how fast memory may be used up, in bytes per second.
	period time.Duration
	worst  int64
	how    snapshot.Counting
	clock  func() time.Time
	// next is when to look at the counters again.
	next time.Time
	// looked is when they were last looked at, took how long that took.
	looked time.Time
	took   time.Duration
	// armAt is when to turn thresholds into amounts again, at once when zero. retry is the pause until then while
	// something cannot be read, else zero.
	armAt time.Time
	retry time.Duration
	// failure is why memory of the node cannot be read, failedSince since when; nil while it can.
	failure     error
	failedSince time.Time

	node   scope
	pods   scope
	floors []floor
	// holds: by the last decision a hard memory threshold is met.
	holds bool
}

// scope is the node, or all pods together.
type scope struct {
	known bool
	// spare is what counts as available beside unused pages: by default, inactive file pages.
	capacity, spare int64
}

// floor is one threshold as an amount.
type floor struct {
	signal snapshot.Signal
	hard   bool
	amount int64
	met    bool
	// left is how much is available above it, by the last look.
	left int64
}

// id is the name of the threshold: floors come and go, and change places, when thresholds are armed anew.
func (f *floor) id() policy.ThresholdID { return policy.ThresholdID{Signal: f.signal, Soft: !f.hard} }

func newGate(reader MemoryReader, clock func() time.Time) *gate {
	if reader == nil {
		return nil
	}
	return &gate{reader: reader, clock: clock}
}

// adopt takes over options. Thresholds are armed anew with the next look, which is due: what was far away may be met by
// them.
func (g *gate) adopt(o *Options) {
	g.period, g.worst, g.how = o.MonitoringPeriod, o.WorstGrowth, o.counting()
	g.armAt, g.next = time.Time{}, time.Time{}
}

// due tells whether it is time to look, or to arm.
func (g *gate) due(now time.Time) bool { return !now.Before(g.next) }

// hurry makes the next look come at once, but not more often than every gateFloor.
func (g *gate) hurry(now time.Time) { g.next = later(now, g.looked.Add(gateFloor)) }

// hold takes over from a decision whether a hard memory threshold is met. As long as one is, each look at the counters
// becomes a decision, which sees its end (minimum reclaim and all) as soon as its beginning was seen.
func (g *gate) hold(d *policy.Decision) {
	g.holds = d.Condition(v1.NodeMemoryPressure).HardMet
	if next := g.looked.Add(g.pause()); next.Before(g.next) {
		g.next = next
	}
}

// watches tells whether there is anything that the gate would notice.
func (g *gate) watches() bool {
	return g != nil && len(g.floors) > 0 && (g.node.known || g.pods.known)
}

// arm takes over thresholds. Amounts in percent need a reading.
func (g *gate) arm(thresholds []policy.Threshold) {
	now := g.clock()
	if now.Before(g.armAt) {
		return
	}
	g.armAt = now.Add(rearm)
	counters, err := g.reader.Counters(g.how)
	if err != nil {
		g.fail(err)
		return
	}
	g.learn(g.reader.ReadMemory(g.how), counters)
	g.floors = g.floors[:0]
	for i := range thresholds {
		t := &thresholds[i]
		if s := g.scopeOf(t.Signal); s != nil && s.known && !t.DryRun {
			g.floors = append(g.floors, floor{signal: t.Signal, hard: t.Hard(), amount: t.Quantity(s.capacity).Value()})
		}
	}
}

func (g *gate) scopeOf(sig snapshot.Signal) *scope {
	switch sig {
	case snapshot.MemoryAvailable:
		return &g.node
	case snapshot.AllocatableMemoryAvailable:
		return &g.pods
	default:
		return nil
	}
}

// learn keeps the limits, and what is spare of all pods, which is too costly to read each time. The pods' cgroup may
// lack for good what is asked of it, a limit for example, so that only its loss brings another attempt.
func (g *gate) learn(r snapshot.MemoryReading, counters snapshot.MemoryCounters) {
	lost := g.pods.known && !r.Pods.Known()
	g.node = scope{known: r.Node.Known(), capacity: r.Node.Capacity}
	g.pods = scope{known: r.Pods.Known(), capacity: r.Pods.Capacity}
	g.pods.spare = max(0, r.Pods.Available+int64(counters.Pods)-r.Pods.Capacity)
	switch {
	case !g.node.known:
		g.fail(r.Node.Err)
		return
	case lost:
		g.tryAgain()
	default:
		g.retry = 0
	}
	g.failure, g.failedSince = nil, time.Time{}
}

// fail notes that memory of the node cannot be read.
func (g *gate) fail(err error) {
	g.node.known, g.pods.known = false, false
	if g.failure == nil {
		g.failedSince = g.clock()
	}
	g.failure = err
	g.tryAgain()
}

// tryAgain arms soon. The pause until then doubles up to the period, so that a failure which lasts costs no more than
// the timer does.
func (g *gate) tryAgain() {
	g.retry = min(max(gateMet, 2*g.retry), g.period)
	g.armAt = g.clock().Add(g.retry)
}

// check looks at the counters and says when a threshold was crossed, or a hard one still is, or is no longer: the
// reading that shows it, else nil.
func (g *gate) check() *snapshot.MemoryReading {
	begin := g.clock()
	reading := g.look()
	g.looked = g.clock()
	g.took = g.looked.Sub(begin)
	g.next = g.looked.Add(g.pause())
	return reading
}

// pause is the time between two looks.
func (g *gate) pause() time.Duration {
	pause := g.sleep()
	if g.retry > 0 {
		pause = min(pause, max(gateFloor, g.armAt.Sub(g.looked)))
	}
	return max(pause, gateShare*g.took)
}

func (g *gate) look() *snapshot.MemoryReading {
	if !g.watches() {
		return nil
	}
	counters, err := g.reader.Counters(g.how)
	if err != nil {
		g.fail(err)
		return nil
	}
	g.node.spare = int64(counters.NodeSpare)
	left := [2]int64{g.node.left(int64(counters.Node)), g.pods.left(int64(counters.Pods))}
	if !g.holds && !g.suspect(left) && !g.pods.full(int64(counters.Pods)) {
		g.note(left)
		return nil
	}
	r := g.reader.ReadMemory(g.how)
	g.learn(r, counters)
	if g.note([2]int64{r.Node.Available, r.Pods.Available}) || g.holds {
		return &r
	}
	return nil
}

// left is what is available by the counters, and by what was spare when that was last known.
func (s *scope) left(usage int64) int64 { return s.capacity - usage + s.spare }

// full tells whether the kernel may be reclaiming pages, so that less may be spare than last known.
func (s *scope) full(usage int64) bool { return s.known && s.capacity-usage < s.capacity/16 }

// suspect tells whether a threshold seems to be met about which something is to be done: a hard one, or one that was
// not met.
func (g *gate) suspect(left [2]int64) bool {
	return slices.ContainsFunc(g.floors, func(f floor) bool { return (f.hard || !f.met) && g.distance(f, left) < 0 })
}

// distance is how much is available above the threshold, negative when it is met. What cannot be read is far away:
// nothing is done because of it.
func (g *gate) distance(f floor, left [2]int64) int64 {
	switch {
	case !g.scopeOf(f.signal).known:
		return math.MaxInt64
	case f.signal == snapshot.MemoryAvailable:
		return left[0] - f.amount
	}
	return left[1] - f.amount
}

// note remembers which thresholds are met. It reports whether one was crossed, or a hard one is met.
func (g *gate) note(left [2]int64) (crossed bool) {
	for i := range g.floors {
		f := &g.floors[i]
		met := g.distance(*f, left) < 0
		crossed = crossed || (met && (f.hard || !f.met))
		f.met = met
		f.left = max(0, g.distance(*f, left))
	}
	return crossed
}

// sleep is how long the nearest threshold cannot be reached, halved.
func (g *gate) sleep() time.Duration {
	if !g.watches() {
		return g.period
	}
	if g.holds {
		return gateMet
	}
	seconds := g.period.Seconds()
	for i := range g.floors {
		switch f := &g.floors[i]; {
		case !f.met:
			seconds = min(seconds, float64(f.left)/float64(2*g.worst))
		case f.hard:
			seconds = min(seconds, gateMet.Seconds())
		}
	}
	return max(time.Duration(seconds*float64(time.Second)), gateFloor)
}

// near tells whether memory is scarce enough to read the pods' cgroups with every look.
func (g *gate) near() bool {
	return slices.ContainsFunc(g.floors, func(f floor) bool { return f.met || f.left < g.scopeOf(f.signal).capacity/4 })
}
