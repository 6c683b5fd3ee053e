package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// clocks are the clocks of a machine: a monotonic one, and the wall clock, which can be set.
type clocks struct {
	passed  time.Duration
	setting time.Duration
}

func (c *clocks) now() time.Time { return start.Add(c.passed) }

// wallTime returns the time by the wall clock.
func (c *clocks) wallTime() time.Time { return c.now().Add(c.setting) }

// disk is a node whose image disk stays too full, with stats of the runtime, which are taken every ten seconds and
// carry its wall time. Evicted pods are gone a few seconds later, and no reclaim releases anything.
type disk struct {
	clocks
	// offset is by how much the runtime's wall clock differs from the agent's.
	offset   time.Duration
	rules    *Rules
	state    State
	measured time.Duration
	stats    snapshot.Observation
	pods     []spec
	release  time.Time
	reclaims []snapshot.Reclaim
	leaving  types.UID
	leaves   time.Duration
	// released is when the last pod was released, as passed time.
	released time.Duration
}

func newDisk() *disk {
	rules := rulesOf(threshold(snapshot.ImageFsAvailable, "10Gi"))
	d := &disk{rules: rules, measured: -time.Hour, released: -time.Hour}
	for i := range 30 {
		d.pods = append(d.pods, spec{name: fmt.Sprintf("writer-%03d", i), disk: gi})
	}
	return d
}

// decide makes a decision after a time, and reports whether that began anything.
func (d *disk) decide(after time.Duration) Decision {
	d.passed += after
	if d.passed-d.measured >= 10*time.Second {
		d.measured = d.passed
		d.stats = snapshot.Observation{Available: gi, Capacity: 100 * gi, At: d.wallTime().Add(d.offset)}
	}
	if d.leaving != "" && d.passed >= d.leaves {
		d.pods = slices.DeleteFunc(d.pods, func(s spec) bool { return types.UID(s.name) == d.leaving })
		d.leaving, d.release, d.released = "", d.now(), d.passed
	}
	s := &snapshot.Snapshot{
		Taken: d.now(), WallTime: d.wallTime(), Signals: snapshot.Unobserved(), Layout: layoutOf(true, false),
		LastRelease: d.release, Reclaims: d.reclaims,
	}
	s.Signals[snapshot.ImageFsAvailable] = d.stats
	for _, p := range d.pods {
		s.Pods = append(s.Pods, p.pod(s.Taken))
	}
	if d.leaving != "" {
		s.InFlight = []snapshot.InFlight{{UID: d.leaving, Started: s.Taken, Deadline: s.Taken}}
	}
	var decision Decision
	decision, d.state = Decide(s, d.rules, d.state)
	if len(decision.Reclaims) > 0 {
		d.reclaims = []snapshot.Reclaim{{Device: snapshot.ImageDevice, Started: d.now(), Finished: d.now()}}
	}
	if len(decision.Victims) > 0 {
		d.leaving, d.leaves = decision.Victims[0].Pod.UID, d.passed+3*time.Second
	}
	return decision
}

// TestADiskIsServedHoweverTheClockIsSet: an eviction or a reclaim begins within a minute, however the wall clock is
// set; and no pod is evicted because of an observation from before the last release.
func TestADiskIsServedHoweverTheClockIsSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDisk()
		hours := rapid.SampledFrom([]int{0, 0, 0, 1, -1}).Draw(t, "hours by which the runtime's clock is off")
		d.offset = time.Duration(hours) * time.Hour
		last := d.passed
		for range 60 {
			if rapid.IntRange(0, 9).Draw(t, "is the clock set?") == 0 {
				step := time.Duration(rapid.IntRange(30, 7200).Draw(t, "by seconds")) * time.Second
				d.setting += step * time.Duration(rapid.SampledFrom([]int{-1, 1}).Draw(t, "to"))
			}
			decision := d.decide(time.Duration(rapid.IntRange(500, 10000).Draw(t, "milliseconds")) * time.Millisecond)
			if len(decision.Victims) > 0 && d.measured < d.released {
				t.Fatalf("at %v a pod was evicted for stats of %v, though another one was released at %v",
					d.passed, d.measured, d.released)
			}
			if len(decision.Victims)+len(decision.Reclaims) > 0 {
				last = d.passed
			}
			if since := d.passed - last; since > time.Minute {
				t.Fatalf("nothing was begun for %v: %+v", since, decision.Needs)
			}
		}
	})
}

// TestAClockThatIsSetBackAnHour: a time service corrects the clock step by step.
func TestAClockThatIsSetBackAnHour(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		d := newDisk()
		for range 3 {
			d.decide(10 * time.Second)
		}
		d.setting = step
		evicted := 0
		for range 12 {
			evicted += len(d.decide(10 * time.Second).Victims)
		}
		if evicted < 3 {
			t.Errorf("clock set by %v: %d pods were evicted in two minutes", step, evicted)
		}
	}
}

// TestGrowthIsMeasuredHoweverTheClockIsSet: stats of pods and of the node carry the wall time.
func TestGrowthIsMeasuredHoweverTheClockIsSet(t *testing.T) {
	for _, step := range []time.Duration{0, -5 * time.Second, 5 * time.Second, -time.Minute, time.Hour} {
		var c clocks
		var h history
		snap := func() *snapshot.Snapshot {
			used := int64(c.passed/time.Second) * 10 * mi
			s := &snapshot.Snapshot{Taken: c.now(), WallTime: c.wallTime(), Signals: snapshot.Unobserved()}
			available := snapshot.Observation{Available: 2*gi - 2*used, Capacity: 32 * gi, At: c.wallTime()}
			s.Signals[snapshot.MemoryAvailable] = available
			pod := spec{name: "leak", memory: gi + used}.pod(s.Taken)
			pod.Usage.MemoryDate = c.wallTime().UnixNano()
			s.Pods = []snapshot.Pod{pod}
			return s
		}
		rules := rulesOf(threshold(snapshot.MemoryAvailable, "1Gi"))
		for i := range 20 {
			c.passed += time.Second
			if i == 15 {
				c.setting = step
			}
			h = h.with(snap(), rules, nil)
		}
		c.passed += time.Second
		s := snap()
		g := h.growthAt(s, 0)
		pod := g.of(0)
		rates := map[string]float64{
			"the pod": pod.steady(), "the pod at worst": pod.peak(), "the system at worst": g.system.peak(),
		}
		for what, got := range rates {
			if got < float64(9*mi) || got > float64(11*mi) {
				t.Errorf("clock set by %v: %s grows by %.1f MiB/s, want 10", step, what, got/float64(mi))
			}
		}
	}
}
