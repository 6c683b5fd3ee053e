package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// grow moves the world through rounds of one second, in which the system and the named pods use up memory at rates in
// bytes per second.
func (w *world) grow(rounds int, system int64, pods map[string]int64) (d Decision) {
	for range rounds {
		free := w.signals[snapshot.MemoryAvailable].Available - system
		for i := range w.pods {
			w.pods[i].memory += pods[w.pods[i].name]
			free -= pods[w.pods[i].name]
		}
		d = w.available(snapshot.MemoryAvailable, free).after(time.Second)
	}
	return d
}

func smallPods(n int) (list []spec) {
	for i := range n {
		list = append(list, spec{name: fmt.Sprintf("small-%02d", i), request: 100 * mi, memory: 40 * mi})
	}
	return list
}

// stopping puts a pod in flight that has just been asked to stop.
func (w *world) stopping(name string, state snapshot.InFlightState, release snapshot.Release) {
	w.flight = append(w.flight, snapshot.InFlight{UID: snapshot.NewFacts(spec{name: name}.object(), true).UID,
		Signal: snapshot.MemoryAvailable,
		Hard:   true, State: state, Started: w.now, Changed: w.now, Deadline: w.now.Add(time.Second), Expected: release})
}

// TestGrowthOfTheSystemIsPaced: a host process, or a critical pod, uses memory fast. Evictions do not end that growth,
// so that pods within their requests are evicted one in a monitoring period.
func TestGrowthOfTheSystemIsPaced(t *testing.T) {
	for name, test := range map[string]struct {
		system int64
		pods   map[string]int64
	}{
		"host process": {system: 350 * mi},
		"critical pod": {pods: map[string]int64{"critical": 350 * mi}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")), smallPods(20)...)
			w.pods = append(w.pods, spec{name: "critical", static: true, memory: gi})
			w.available(snapshot.MemoryAvailable, 99*mi+4*350*mi).after(time.Second)
			w.evicts(w.grow(3, test.system, test.pods))
			w.evicts(w.grow(1, test.system, test.pods), "small-00")
			// The first victim ends at once, and the deficit continues to grow.
			w.pods = w.pods[1:]
			w.release = w.now
			for range 9 {
				w.evicts(w.grow(1, test.system, test.pods))
			}
			w.evicts(w.grow(1, test.system, test.pods), "small-01")
		})
	}
}

// TestDeficitLeftByTheSystemIsPaced: a host process used memory fast and keeps it. Pods within their requests are
// evicted one in a monitoring period also when it has stopped growing, and when one of them grows a little.
func TestDeficitLeftByTheSystemIsPaced(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")), smallPods(20)...)
	w.available(snapshot.MemoryAvailable, gi+100*mi).after(time.Second)
	w.evicts(w.grow(1, 0, nil))
	w.evicts(w.grow(1, 350*mi, nil), "small-00")
	// The first victim ends at once, and the deficit stays the same.
	w.pods = w.pods[1:]
	w.release = w.now
	for range 9 {
		w.evicts(w.grow(1, 0, map[string]int64{"small-19": mi}))
	}
	w.evicts(w.grow(1, 0, map[string]int64{"small-19": mi}), "small-19")
}

// TestGrowthOfACandidateIsNotPaced: a host process grows fastest, and a pod within its request uses memory so fast that
// it alone exhausts what is left. Its eviction ends that growth and does not await its turn.
func TestGrowthOfACandidateIsNotPaced(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")), smallPods(5)...)
	w.pods = append(w.pods, spec{name: "leak", priority: 1, request: 8 * gi, memory: gi})
	rates := map[string]int64{"leak": 100 * mi}
	w.available(snapshot.MemoryAvailable, 99*mi+4*350*mi).after(time.Second)
	w.evicts(w.grow(3, 250*mi, rates))
	w.state.Enforced.Needs[memoryGroup].LastEviction = w.now
	w.evicts(w.grow(1, 250*mi, rates), "leak")
}

// TestGrowthOfAVictimIsNotCounted: a leak is in flight and continues to grow. Its growth is not added to what else is
// needed.
func TestGrowthOfAVictimIsNotCounted(t *testing.T) {
	w := newWorld(t, rulesOf(reclaiming(threshold(snapshot.MemoryAvailable, "100Mi"), "1200Mi")))
	for i := range 14 {
		w.pods = append(w.pods, spec{name: fmt.Sprintf("other-%02d", i), priority: 10, memory: 60 * mi})
	}
	w.pods = append(w.pods, spec{name: "leak", memory: 800 * mi})
	leak := map[string]int64{"leak": 100 * mi}
	w.available(snapshot.MemoryAvailable, 99*mi+4*100*mi).after(time.Second)
	w.grow(3, 0, leak)
	w.stopping("leak", snapshot.Stopping, snapshot.Release{})
	d := w.grow(1, 0, leak)
	// 1301 Mi less 99 Mi are missing, and the leak gives back 1200 Mi. A little more is needed than is in flight, and
	// there is time.
	w.outcome(d, AwaitTurn)
	w.evicts(d)
}

// TestAwaitedReleaseAllowsForGrowth: what is in flight covers what is missing now, but until its release another pod
// uses far more.
func TestAwaitedReleaseAllowsForGrowth(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")),
		spec{name: "dying", memory: 120 * mi}, spec{name: "leak", memory: gi})
	leak := map[string]int64{"leak": 500 * mi}
	w.available(snapshot.MemoryAvailable, 60*mi+2*500*mi).after(time.Second)
	w.grow(1, 0, leak)
	w.stopping("dying", snapshot.Stopping, snapshot.Release{})
	w.evicts(w.grow(1, 0, leak), "leak")
}

// TestFreedMemoryIsNotExpectedAgain: the containers of a victim have stopped, and its volume cannot be unmounted. Its
// anonymous memory is free and part of what is available; only files in memory and page cache are still expected. Stats
// from before its end do not show that.
func TestFreedMemoryIsNotExpectedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		seen    time.Duration
		victims []string
	}{
		"stats from after its end":  {time.Second, []string{"leak"}},
		"stats from before its end": {-time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")), spec{name: "leak", memory: gi})
			w.now = w.now.Add(time.Hour)
			w.stopping("stopped", snapshot.Stopped, snapshot.Release{Memory: 2 << 30, CertainMemory: 2 << 30,
				AnonymousMemory: 2<<30 - 50<<20})
			w.flight[0].Started = w.now.Add(-time.Minute)
			w.signals[snapshot.MemoryAvailable] = snapshot.Observation{
				Available: 0, Capacity: 32 * gi, At: wallTime(w.now.Add(test.seen)),
			}
			w.evicts(w.after(2*time.Second), test.victims...)
		})
	}
}

// TestImminentExhaustionCountsAllGrowth: a leak of high priority uses memory fast, and two pods of lower priority
// together hold enough for the time that a kill takes. The first of them alone does not.
func TestImminentExhaustionCountsAllGrowth(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")),
		spec{name: "one", memory: 500 * mi}, spec{name: "two", memory: 499 * mi},
		spec{name: "leak", priority: 1, memory: 100 * mi})
	w.rules.Timing.Settling = 0
	w.available(snapshot.MemoryAvailable, 10*mi+300*mi).after(time.Second)
	w.evicts(w.grow(1, 0, map[string]int64{"leak": 300 * mi}), "one", "two")
}

// TestShortSettlingKeepsTheForecastOfAKill: the growth of pods above their requests until a kill takes effect counts,
// however short settling is.
func TestShortSettlingKeepsTheForecastOfAKill(t *testing.T) {
	for _, settling := range []time.Duration{0, time.Second, 3 * time.Second} {
		w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")))
		w.rules.Timing.Settling = settling
		for i := range 30 {
			w.pods = append(w.pods, spec{name: fmt.Sprintf("small-%02d", i), request: 9 * mi, memory: 10 * mi})
		}
		w.pods = append(w.pods, spec{name: "leak", priority: 1, memory: gi})
		leak := map[string]int64{"leak": 200 * mi}
		w.available(snapshot.MemoryAvailable, 99*mi+4*200*mi).after(time.Second)
		w.evicts(w.grow(3, 0, leak))
		w.evicts(w.grow(1, 0, leak), "leak")
	}
}

// TestVictimOfALimitIsInFlight: a pod is evicted for its own limit. It is not a victim of the node's need as well, and
// what it releases counts.
func TestVictimOfALimitIsInFlight(t *testing.T) {
	for name, test := range map[string]struct {
		holds   int64
		victims []string
	}{
		"it holds enough": {2 * gi, nil},
		"it does not":     {100 * mi, []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
				spec{name: "other", priority: 1, memory: 3 * gi})
			w.rules.LocalStorageLimits = true
			s := w.available(snapshot.MemoryAvailable, 100*mi).snapshot()
			violator := violatorPod("violator", 10*mi, 20*mi)
			violator.Cgroup = &snapshot.Memory{WorkingSet: snapshot.Known(snapshot.Bytes(test.holds), s.Taken)}
			s.Pods = append(s.Pods, violator)
			d, _ := Decide(s, w.rules, State{})
			if got := names(limitVictims(d.Victims)); fmt.Sprint(got) != "[violator]" {
				t.Errorf("local storage %v", got)
			}
			w.evicts(d, test.victims...)
		})
	}
}

// TestPacedNeedEvictsASmallOffender: a host process has used memory, and a pod within its request was evicted a moment
// ago. The next one has to await its turn, though it alone would be enough. Small pods above their requests are evicted
// meanwhile, one by one, and do not delay it.
func TestPacedNeedEvictsASmallOffender(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
		spec{name: "first", request: 500 * mi, memory: 400 * mi}, spec{name: "second", request: 500 * mi, memory: 399 * mi})
	w.available(snapshot.MemoryAvailable, gi+100*mi).after(time.Second)
	w.evicts(w.grow(1, 0, nil))
	w.evicts(w.grow(1, 350*mi, nil), "first")
	w.pods = append(w.pods[1:], spec{name: "large", request: 10 * mi, memory: 30 * mi},
		spec{name: "small", request: 10 * mi, memory: 20 * mi})
	w.release = w.now
	w.evicts(w.grow(1, 0, nil), "large")
	w.stopping("large", snapshot.Stopping, snapshot.Release{})
	w.evicts(w.grow(1, 0, nil))
	w.pods, w.flight, w.release = slices.Delete(w.pods, 1, 2), nil, w.now
	w.evicts(w.grow(1, 0, nil), "small")
	w.pods, w.release = w.pods[:1], w.now
	w.evicts(w.grow(6, 0, nil))
	w.evicts(w.grow(1, 0, nil), "second")
}

// TestPacedNeedEvictsNoUselessOffender: pods that opted out, and pods with unknown usage, are not evicted meanwhile.
func TestPacedNeedEvictsNoUselessOffender(t *testing.T) {
	t1 := pacing{}
	within := candidate{known: true, usage: 1, request: 2}
	for name, test := range map[string]struct {
		candidate
		want int
	}{
		"exceeds its request":    {candidate{known: true, usage: 2, request: 1, first: true}, 1},
		"within its request":     {within, 0},
		"opted out":              {candidate{known: true, usage: 2, request: 1, first: true, optedOut: true}, 0},
		"being stopped":          {candidate{known: true, usage: 1, request: 2, hasten: true}, 1},
		"being stopped, unknown": {candidate{hasten: true}, 0},
	} {
		if got := t1.firstOverRequest([]candidate{within, test.candidate}, time.Second); len(got) != test.want {
			t.Errorf("%s: %d pods", name, len(got))
		}
	}
	if got := (&pacing{wait: true}).firstOverRequest([]candidate{{known: true, usage: 2, first: true}},
		time.Second); len(got) != 0 {
		t.Errorf("beside another one: %d pods", len(got))
	}
}
