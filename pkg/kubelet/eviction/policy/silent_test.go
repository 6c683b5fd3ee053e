package policy

import (
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestD10NoEvictionForADiskWhileTheRuntimeIsSilent: the disk is observed and the node is reclaimed from, and pods are
// kept until their usage is known. What a reclaim released while the runtime was silent does not count then.
func TestD10NoEvictionForADiskWhileTheRuntimeIsSilent(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi")), spec{name: "writer", disk: 9 * gi})
	w.silent = true
	d := w.available(snapshot.NodeFsAvailable, 9*gi).after(time.Second)
	w.condition(d, v1.NodeDiskPressure, true)
	w.outcome(d, ReclaimNode)
	w.now = w.now.Add(time.Second)
	w.reclaim = []snapshot.Reclaim{w.done(false, snapshot.Reclaimed{})}
	d = w.after(time.Second)
	w.outcome(d, AwaitStats)
	w.evicts(d)
	w.silent = false
	w.now = w.now.Add(time.Minute)
	w.outcome(w.after(time.Second), ReclaimNode)
	w.reclaim = []snapshot.Reclaim{w.done(false, snapshot.Reclaimed{})}
	w.evicts(w.after(time.Second), "writer")
}

// TestNoEvictionForADiskBeforePodStats: while the runtime is slow the node is reclaimed from once, and the observation
// of the disk is still unused when the stats of pods arrive, whenever they were taken.
func TestNoEvictionForADiskBeforePodStats(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi")), spec{name: "writer", disk: 9 * gi})
	w.awaited = true
	stats := func() {
		stats := snapshot.Observation{Available: 9 * gi, Capacity: 32 * gi, At: wallTime(w.now)}
		w.signals[snapshot.NodeFsAvailable] = stats
	}
	stats()
	d := w.after(time.Second)
	w.condition(d, v1.NodeDiskPressure, true)
	w.outcome(d, ReclaimNode)
	w.now = w.now.Add(time.Second)
	w.reclaim = []snapshot.Reclaim{w.done(false, snapshot.Reclaimed{})}
	for range 30 {
		stats()
		d = w.after(time.Second)
		w.outcome(d, AwaitStats)
		w.evicts(d)
	}
	w.awaited = false
	w.evicts(w.after(time.Second), "writer")
}

// TestFailedReclaimIsRepeatedWhenTheRuntimeAnswers: the runtime answers a moment after a reclaim has failed because it
// did not.
func TestFailedReclaimIsRepeatedWhenTheRuntimeAnswers(t *testing.T) {
	for _, failure := range []error{errors.New("the runtime does not answer"), nil} {
		w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi")), spec{name: "writer", disk: 9 * gi})
		w.silent = true
		w.outcome(w.available(snapshot.NodeFsAvailable, 9*gi).after(time.Second), ReclaimNode)
		w.now = w.now.Add(time.Second)
		w.reclaim = []snapshot.Reclaim{w.done(false, snapshot.Reclaimed{})}
		w.reclaim[0].Err = failure
		w.outcome(w.after(time.Second), AwaitStats)
		w.silent = false
		d := w.after(time.Second)
		if failure == nil {
			w.evicts(d, "writer")
			continue
		}
		w.outcome(d, ReclaimNode)
		w.now = w.now.Add(time.Second)
		w.reclaim = []snapshot.Reclaim{w.done(false, snapshot.Reclaimed{})}
		w.evicts(w.after(time.Second), "writer")
	}
}

// TestKillsCountLongerWhileTheRuntimeIsSilent: the counterpart of TestD3OverdueKillBringsTheNextVictim and
// TestD3FailedKillBringsTheNextVictim.
func TestKillsCountLongerWhileTheRuntimeIsSilent(t *testing.T) {
	for _, state := range []snapshot.InFlightState{snapshot.Stopping, snapshot.Failed} {
		w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
			spec{name: "a", memory: 9 * gi}, spec{name: "b", memory: 8 * gi})
		w.silent = true
		w.available(snapshot.MemoryAvailable, 100*mi)
		w.evicts(w.after(time.Second), "a")
		w.flight = []snapshot.InFlight{{UID: "a", State: state, Hard: true, Started: w.now, Changed: w.now,
			Deadline: w.now.Add(time.Second)}}
		w.outcome(w.after(40*time.Second), AwaitRelease)
		w.outcome(w.after(SilentPatience-40*time.Second), AwaitRelease)
		w.evicts(w.after(2*time.Second), "b")
	}
}

// TestAnotherVictimWhenTheFirstIsNotEnough holds while the runtime is silent as well.
func TestAnotherVictimWhenTheFirstIsNotEnough(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
		spec{name: "a", memory: 500 * mi}, spec{name: "b", memory: 400 * mi})
	w.silent = true
	w.evicts(w.available(snapshot.MemoryAvailable, 800*mi).after(time.Second), "a")
	w.flight = []snapshot.InFlight{{UID: "a", State: snapshot.Failed, Hard: true, Started: w.now, Changed: w.now,
		Deadline: w.now.Add(time.Second)}}
	w.evicts(w.available(snapshot.MemoryAvailable, 300*mi).after(40*time.Second), "b")
}

// TestNodeReclaimIsNotRepeatedEachRound: there is no candidate, and each round has new stats. Node-level reclaim is
// repeated as often as by stock, and each round has the same outcome.
func TestNodeReclaimIsNotRepeatedEachRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi"))
		rules.Timing.Period = time.Duration(rapid.IntRange(1, 60).Draw(t, "period")) * time.Second
		now, finished, reclaims := start, time.Time{}, []snapshot.Reclaim(nil)
		silent := rapid.Bool().Draw(t, "silent")
		var m State
		asked := 0
		for range 200 {
			now = now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "pace")) * time.Millisecond)
			s := &snapshot.Snapshot{
				Taken: now, WallTime: wallTime(now), Signals: snapshot.Unobserved(), Layout: layoutOf(false, false),
				Reclaims: reclaims, RuntimeSilent: silent,
			}
			stats := snapshot.Observation{Available: gi, Capacity: 32 * gi, At: wallTime(now)}
			s.Signals[snapshot.NodeFsAvailable] = stats
			var d Decision
			d, m = Decide(s, rules, m)
			if len(d.Reclaims) == 0 {
				if since := now.Sub(finished); since >= 2*rules.Timing.Period+8*time.Second {
					t.Fatalf("not asked for %v", since)
				}
				continue
			}
			asked++
			if since := now.Sub(finished); since < rules.Timing.Period {
				t.Fatalf("asked again after %v", since)
			}
			began := now
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "takes")) * time.Millisecond)
			finished = now
			reclaims = []snapshot.Reclaim{{Device: snapshot.NodeDevice, Started: began, Finished: finished}}
		}
		if asked < 2 {
			t.Fatalf("asked %d times", asked)
		}
	})
}

// TestNodeReclaimIsRepeatedAfterEachVictim: an evicted pod leaves containers and images that can be removed.
func TestNodeReclaimIsRepeatedAfterEachVictim(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi")), spec{name: "a", disk: gi},
		spec{name: "b", disk: gi})
	w.available(snapshot.NodeFsAvailable, 5*gi)
	w.outcome(w.after(time.Second), ReclaimNode)
	w.reclaim = []snapshot.Reclaim{w.done(false, snapshot.Reclaimed{})}
	w.evicts(w.after(time.Second), "a")
	w.pods = w.pods[1:]
	w.outcome(w.after(time.Second), ReclaimNode)
}
