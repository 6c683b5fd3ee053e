package memorywatch

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	mi = int64(1) << 20
	gi = int64(1) << 30
)

// plenty is a reader of a node of 32 GiB on which nothing is used. It counts readings of all pods.
type plenty struct{ readings int }

func (*plenty) Counters(snapshot.Counting) (snapshot.MemoryCounters, error) {
	return snapshot.MemoryCounters{}, nil
}

func (k *plenty) ReadMemory(snapshot.Counting) snapshot.MemoryReading {
	k.readings++
	return (*plenty).ReadPods(k, snapshot.Counting{}, nil)
}

func (*plenty) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	return append(into, snapshot.PodUsage{UID: "hog"})
}

func (*plenty) ReadPod(snapshot.Counting, types.UID) (snapshot.PodMemory, error) {
	return snapshot.PodMemory{}, nil
}

func (*plenty) ReadPods(snapshot.Counting, []types.UID) snapshot.MemoryReading {
	return snapshot.MemoryReading{
		Node: snapshot.Observation{Available: 32 * gi, Capacity: 32 * gi}, Pods: snapshot.Observation{Err: errNotRead},
	}
}

// TestTheMemoryWatcherResumesItsPaceAtOnce: when a hard threshold is clear, the next crossing may be near. The pause
// while it was met does not count any more, only that reading the counters does not cost too much.
func TestTheMemoryWatcherResumesItsPaceAtOnce(t *testing.T) {
	now := time.Unix(1e9, 0)
	w := &Watcher{clock: func() time.Time { return now }, period: 10 * time.Second, worst: 2 * gi,
		node: scope{known: true, capacity: 32 * gi}}
	w.floors = []floor{{signal: snapshot.MemoryAvailable, hard: true, amount: gi, left: 400 * mi}}
	w.readAt, w.next, w.remains = now, now.Add(MetPause), gi+400*mi
	held := policy.Decision{Conditions: [3]policy.Condition{{Type: v1.NodeMemoryPressure, True: true, HardMet: true}}}
	for _, test := range []struct {
		d    policy.Decision
		took time.Duration
		want time.Duration
	}{{held, 0, MetPause}, {held, time.Second, MetPause},
		{policy.Decision{}, 0, 400 * time.Second / 4096},
		{policy.Decision{}, 2 * time.Millisecond, 100 * time.Millisecond}} {
		w.next, w.costs.took = now.Add(MetPause), test.took
		w.Decided(&test.d, nil)
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
	w := &Watcher{
		node: scope{known: true, capacity: 10 * gi, spare: gi}, pods: scope{known: true, capacity: 8 * gi},
		floors: []floor{{signal: snapshot.MemoryAvailable, hard: true, amount: gi},
			{signal: snapshot.AllocatableMemoryAvailable, amount: 2 * gi}},
	}
	w.clock, w.period, w.worst = func() time.Time { return now }, 10*time.Second, 2*gi
	w.reader = slowCounters{func() { now = now.Add(cost) }}
	w.costs = newReadCosts(w.reader, w.clock)
	for range reports {
		now = now.Add(100 * time.Millisecond)
		hurried := w.Hurry(now)
		if hurried {
			caused++
		}
		switch due := w.Due(now); {
		case due:
			w.Check()
			reads++
		case hurried:
			t.Fatal("a report said to cause a read did not")
		}
	}
	if caused == 0 || caused == reports {
		t.Errorf("%d of %d reports caused a read, want some", caused, reports)
	}
	elapsed := now.Sub(begin)
	if most := int((elapsed+Credit)/(PauseShare*cost)) + 1; reads > most || reads < most/2 {
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

// What is spare is read while the kernel may be reclaiming pages, and near that when memory is used up.
func TestSpareIsOld(t *testing.T) {
	for _, test := range []struct {
		capacity, free, changed, threshold int64
		age                                time.Duration
		want                               bool
	}{
		{16 * gi, 2 * gi, 8 * gi, gi, time.Hour, false},
		{16 * gi, 200 * mi, 0, 300 * mi, 0, false},
		{16 * gi, 200 * mi, mi, 300 * mi, 0, true},
		{16 * gi, 200 * mi, -mi, 300 * mi, 0, true},
		{16 * gi, 200 * mi, mi, 197 * mi, 0, true},
		{16 * gi, 200 * mi, 9 * mi, 160 * mi, 0, false},
		{16 * gi, 200 * mi, -10 * mi, 160 * mi, 0, true},
		{16 * gi, 900 * mi, 15 * mi, 100 * mi, 0, false},
		{16 * gi, 900 * mi, 16 * mi, 100 * mi, 0, true},
		{16 * gi, 200 * mi, 0, 100 * mi, spareAge, true},
		{16 * gi, 63 * mi, 0, 10 * mi, 0, true},
		{512 * mi, 33 * mi, 8 * mi, 10 * mi, time.Hour, false},
		{512 * mi, 31 * mi, 0, 10 * mi, 0, true},
	} {
		begin := time.Unix(1000, 0)
		usage := test.capacity - test.free
		w := &Watcher{
			pods: scope{known: true, capacity: test.capacity}, spareAt: begin, spareUsage: usage - test.changed,
			clock:  func() time.Time { return begin.Add(test.age) },
			floors: []floor{{signal: snapshot.AllocatableMemoryAvailable, hard: true, amount: test.threshold}},
		}
		if got := w.spareIsOld(usage, [2]int64{0, test.free}); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}

func TestWorstGrowthSetsThePace(t *testing.T) {
	w := New(&plenty{}, time.Now)
	w.node.known = true
	w.floors = []floor{{signal: snapshot.MemoryAvailable, left: gi}}
	for growth, want := range map[int64]time.Duration{gi: 500 * time.Millisecond, 4 * gi: 125 * time.Millisecond} {
		o := settings.DefaultOptions()
		o.WorstGrowth = growth
		w.Adopt(&o)
		if got := w.sleep(); got != want {
			t.Errorf("sleep at %d: %v, want %v", growth, got, want)
		}
	}
}

// A threshold seems to be met now, and another one will be met in a second: that all pods are read for the second does
// not delay the decision about the first.
func TestNoRefreshAtTheCrossing(t *testing.T) {
	k := &plenty{}
	clock := func() time.Time { return time.Unix(1000, 0) }
	w := &Watcher{
		reader: k, clock: clock, costs: newReadCosts(k, clock), worst: 2 * gi, period: 10 * time.Second,
		looks: &looks{reader: k}, meetsIn: time.Second, node: scope{known: true, capacity: 32 * gi},
	}
	w.floors = []floor{{signal: snapshot.MemoryAvailable, hard: true, amount: 100 * mi, met: true}}
	w.look([2]int64{90 * mi, 0}, snapshot.MemoryCounters{}, true)
	if got := k.readings; got > 0 {
		t.Errorf("%d readings of all pods in advance, while a crossing waits to be read", got)
	}
}

// The usage at which a threshold is met, of the node and of all pods; there is none that cannot be reached.
func TestUsageAtAThreshold(t *testing.T) {
	thresholds, err := settings.ParseThresholds(settings.ThresholdConfig{
		Hard: map[string]string{"memory.available": "2Gi"}, Soft: map[string]string{"memory.available": "50%"},
		SoftGracePeriods: map[string]string{"memory.available": "1m"}, AllocatableEnforced: []string{"pods"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := New(&plenty{}, time.Now)
	w.Adopt(new(settings.DefaultOptions()))
	w.Arm(thresholds)
	if got := len(w.Thresholds()); got != 2 {
		t.Fatalf("%d thresholds are watched, of all pods, which have no limit, none", got)
	}
	for id, want := range map[policy.ThresholdID]int64{
		{Signal: snapshot.MemoryAvailable}: 30 * gi, {Signal: snapshot.MemoryAvailable, Soft: true}: 16 * gi,
		{Signal: snapshot.AllocatableMemoryAvailable}: 0,
	} {
		if got, ok := w.UsageAt(id); ok != (want > 0) || (ok && got != want) {
			t.Errorf("%+v: %d, %t, want %d", id, got, ok, want)
		}
	}
}
