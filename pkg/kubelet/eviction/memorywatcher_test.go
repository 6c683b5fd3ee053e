package eviction

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestFastLeakIsCaughtAtTheCrossing: the node loses 1 GiB/s, and 100 MiB are left at the crossing.
func TestFastLeakIsCaughtAtTheCrossing(t *testing.T) {
	for _, cached := range []int64{0, 12 * gi} {
		t.Run(fmt.Sprintf("page cache %dGi", cached/gi), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.add("leak", gi).cached = cached
				n.add("neighbour", gi, memoryRequest(2*gi))
				n.available(12*gi + 100*mi)
				k := &kernel{node: n}
				c := n.config(t, hard("100Mi"))
				c.Memory = k
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					wait(3 * time.Second)
					n.grows("leak", gi)
					wait(12*time.Second - time.Millisecond)
					expect(t, "kills before the crossing", n.killed(), []string{})
					wait(51 * time.Millisecond)
					expect(t, "kills 50 ms after the crossing", n.killed(), []string{"leak/1"})
				})
			})
		})
	}
}

// TestSixInnocents is what was seen on a real node: small pods over their requests at priority 0, a leak at priority 1.
func TestD23OneEvictionOnAGrowingNode(t *testing.T) {
	for _, rate := range []int64{1, 20, 40, 200} {
		t.Run(fmt.Sprintf("%dMiB/s", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				for i := range 30 {
					n.add(fmt.Sprintf("small-%02d", i), 8*mi, memoryRequest(7*mi))
				}
				n.add("leak", 100*mi, priority(1), memoryRequest(50*mi))
				n.available(100*mi + rate*30*mi)
				c := n.config(t, hard("100Mi"))
				c.Memory = &kernel{node: n}
				n.killTakes = 1500 * time.Millisecond
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					n.grows("leak", rate*mi)
					wait(3 * time.Minute)
					expect(t, "kills", n.killed(), []string{"leak/1"})
				})
			})
		})
	}
}

// TestTheMemoryWatcherResumesItsPaceAtOnce: when a hard threshold is clear, the next crossing may be near. The pause
// while it was met does not count any more, only that reading the counters does not cost too much.
func TestTheMemoryWatcherResumesItsPaceAtOnce(t *testing.T) {
	now := time.Unix(1e9, 0)
	w := &memoryWatcher{clock: func() time.Time { return now }, period: 10 * time.Second, worst: 2 * gi,
		node: scope{known: true, capacity: 32 * gi}}
	w.floors = []floor{{signal: snapshot.MemoryAvailable, hard: true, amount: gi, left: 400 * mi}}
	w.readAt, w.next, w.remains = now, now.Add(watcherMetPause), gi+400*mi
	held := policy.Decision{Conditions: [3]policy.Condition{{Type: v1.NodeMemoryPressure, True: true, HardMet: true}}}
	for _, test := range []struct {
		d    policy.Decision
		took time.Duration
		want time.Duration
	}{{held, 0, watcherMetPause}, {held, time.Second, watcherMetPause},
		{policy.Decision{}, 0, 400 * time.Second / 4096},
		{policy.Decision{}, 2 * time.Millisecond, 100 * time.Millisecond}} {
		w.next, w.costs.took = now.Add(watcherMetPause), test.took
		w.decided(&test.d)
		if got := w.next.Sub(now).Round(time.Millisecond); got != test.want.Round(time.Millisecond) {
			t.Errorf("the next read is in %v, want %v", got, test.want)
		}
	}
}

// The kernel may report pressure again and again while no threshold is near: what is read then keeps to its share of
// the time as well.
func TestReportsOfPressureDoNotExceedTheShareOfReading(t *testing.T) {
	const cost, reports = 5 * time.Millisecond, 1000
	begin := time.Unix(1000, 0)
	now, reads, caused := begin, 0, 0
	w := armedWatcher()
	w.clock, w.period, w.worst = func() time.Time { return now }, 10*time.Second, 2*gi
	w.reader = slowCounters{func() { now = now.Add(cost) }}
	w.costs = newReadCosts(w.reader, w.clock)
	for range reports {
		now = now.Add(100 * time.Millisecond)
		hurried := w.hurry(now)
		if hurried {
			caused++
		}
		switch due := w.due(now); {
		case due:
			w.check()
			reads++
		case hurried:
			t.Fatal("a report said to cause a read did not")
		}
	}
	if caused == 0 || caused == reports {
		t.Errorf("%d of %d reports caused a read, want some", caused, reports)
	}
	elapsed := now.Sub(begin)
	if most := int((elapsed+watcherCredit)/(watcherPauseShare*cost)) + 1; reads > most || reads < most/2 {
		t.Errorf("%d reads of %s in %s, want at most %d and at least half of that", reads, cost, elapsed, most)
	}
}

// slowCounters are those of an idle node. Reading them takes time.
type slowCounters struct{ read func() }

func (c slowCounters) Counters(snapshot.Counting) (snapshot.MemoryCounters, error) {
	c.read()
	return snapshot.MemoryCounters{}, nil
}

func (slowCounters) ReadMemory(snapshot.Counting) snapshot.MemoryReading {
	return snapshot.MemoryReading{}
}

func TestMemoryWatcherCostsLittleWhileMemoryIsPlenty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("pod", gi).cached = 10 * gi
		n.available(16 * gi)
		k := &kernel{node: n}
		c := n.config(t, hard("100Mi"))
		c.Memory = k
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(10 * time.Minute)
			if k.counterReads > 10*60 || k.readings > 20 {
				t.Errorf("%d reads of counters and %d readings in ten minutes", k.counterReads, k.readings)
			}
		})
	})
}

// TestLingeringSoftThresholdIsNotReadAllTheTime: a soft threshold with a long grace is met for an hour.
func TestLingeringSoftThresholdIsNotReadAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("pod", gi)
		n.available(2 * gi)
		k := &kernel{node: n}
		c := n.config(t, settings.ThresholdConfig{Soft: map[string]string{"memory.available": "4Gi"},
			SoftGracePeriods: map[string]string{"memory.available": "2h"}})
		c.Memory = k
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Hour)
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
			if k.readings > 500 {
				t.Errorf("%d readings in an hour", k.readings)
			}
		})
	})
}

func TestD10DirectReadingStandsInForTheSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 9*gi)
		n.add("small", gi)
		n.available(100 * mi)
		n.summaryErr = errors.New("image file system cannot be read")
		c := n.config(t, hard("1Gi"))
		c.Memory = &kernel{node: n}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			expect(t, "kills", n.killed(), []string{"hog/1"})
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
			expect(t, "outcome", len(m.last.Load().Decision.Needs), 0)
		})
	})
}

func TestHangingSummaryDoesNotStopEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.hang = make(chan struct{})
		n.add("hog", 9*gi)
		n.available(20 * gi)
		c := n.config(t, hard("1Gi"))
		c.Memory = &kernel{node: n}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			n.available(100 * mi)
			wait(11 * time.Second)
			expect(t, "kills", n.killed(), []string{"hog/1"})
		})
	})
}
