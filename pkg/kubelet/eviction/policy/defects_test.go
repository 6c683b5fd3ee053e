package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Tests whose names begin with D and a number play that row of docs/defects.md.

func TestD1HardWinsOverSoft(t *testing.T) {
	rules := rulesOf(soft(threshold(snapshot.MemoryAvailable, "2Gi"), time.Minute),
		threshold(snapshot.MemoryAvailable, "1Gi"))
	rules.MaxPodGracePeriodSeconds = 600
	long := int64(600)
	w := newWorld(t, rules, spec{name: "hog", memory: 20 * gi, grace: &long})
	w.available(snapshot.MemoryAvailable, 3*gi/2)
	w.evicts(w.after(time.Second))
	d := w.available(snapshot.MemoryAvailable, 500*mi).after(2 * time.Minute)
	w.evicts(d, "hog")
	if v := d.Victims[0]; !v.Cause.Hard() || v.GraceSeconds != 1 {
		t.Errorf("hard %v, grace %d; want a hard eviction with 1 s", v.Cause.Hard(), v.GraceSeconds)
	}
}

func TestD2ReclaimIsJudgedByItsOwnSignal(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi"),
		soft(threshold(snapshot.MemoryAvailable, "2Gi"), time.Hour)),
		spec{name: "pod", memory: gi, disk: gi})
	d := w.available(snapshot.NodeFsAvailable, 5*gi).available(snapshot.MemoryAvailable, gi).after(time.Second)
	w.outcome(d, ReclaimNode)
	if len(d.Reclaims) != 1 || !d.Reclaims[0].Images || !d.Reclaims[0].Containers {
		t.Errorf("reclaims %+v", d.Reclaims)
	}
	w.reclaim = []snapshot.Reclaim{{Device: snapshot.NodeDevice, Started: w.now, Finished: w.now.Add(time.Second)}}
	d = w.available(snapshot.NodeFsAvailable, 12*gi).after(2 * time.Second)
	w.evicts(d)
	if len(d.Needs) != 0 {
		t.Errorf("needs %+v, want nothing", d.Needs)
	}
}

func TestD3FailedKillBringsTheNextVictim(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
		spec{name: "a", memory: 9 * gi}, spec{name: "b", memory: 8 * gi})
	w.available(snapshot.MemoryAvailable, 100*mi)
	w.evicts(w.after(time.Second), "a")
	w.flight = []snapshot.InFlight{{UID: "a", Signal: snapshot.MemoryAvailable, Hard: true, State: snapshot.Failed,
		Started: w.now, Changed: w.now.Add(10 * time.Second), Deadline: w.now.Add(time.Second)}}
	w.evicts(w.after(20*time.Second), "b")
}

func TestD3OverdueKillBringsTheNextVictim(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
		spec{name: "a", memory: 9 * gi}, spec{name: "b", memory: 8 * gi})
	w.available(snapshot.MemoryAvailable, 100*mi)
	w.evicts(w.after(time.Second), "a")
	w.flight = []snapshot.InFlight{{UID: "a", State: snapshot.Stopping, Hard: true, Started: w.now, Changed: w.now,
		Deadline: w.now.Add(time.Second)}}
	w.outcome(w.after(5*time.Second), AwaitRelease)
	w.evicts(w.after(30*time.Second), "b")
}

func TestD4HardHastensWhatDrainsSlowly(t *testing.T) {
	long := int64(3600)
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
		spec{name: "draining", memory: 9 * gi, grace: &long}, spec{name: "other", memory: 8 * gi})
	w.flight = []snapshot.InFlight{{UID: "draining", State: snapshot.Stopping, Started: start, Changed: start,
		Deadline: start.Add(time.Hour)}}
	d := w.available(snapshot.MemoryAvailable, 100*mi).after(time.Minute)
	w.evicts(d, "draining")
	if v := d.Victims[0]; !v.Hasten || v.GraceSeconds != 1 {
		t.Errorf("%+v, want it hastened with 1 s", v)
	}
}

func TestD5LocalStorageAndNodePressureDoNotStarveEachOther(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")), spec{name: "hog", memory: 20 * gi})
	w.rules.LocalStorageLimits = true
	s := w.available(snapshot.MemoryAvailable, 100*mi).snapshot()
	violator := violatorPod("violator", 10*mi, 20*mi)
	s.Pods = append(s.Pods, violator)
	d, state := Decide(s, w.rules, State{})
	if got := names(limitVictims(d.Victims)); fmt.Sprint(got) != "[violator]" {
		t.Errorf("local storage %v", got)
	}
	w.evicts(d, "hog")
	// The violator cannot be stopped: it is not evicted again for a while, and no need waits for it.
	s2 := *s
	s2.Taken = s.Taken.Add(20 * time.Second)
	s2.InFlight = []snapshot.InFlight{{UID: "violator", State: snapshot.Failed, Started: s.Taken,
		Changed: s.Taken.Add(10 * time.Second)}}
	d, _ = Decide(&s2, w.rules, state)
	if len(limitVictims(d.Victims)) != 0 {
		t.Errorf("local storage %v again at once", names(limitVictims(d.Victims)))
	}
	w.evicts(d, "hog")
}

func TestD6NegativeMaximumLeavesPodsTheirGrace(t *testing.T) {
	sixty := int64(60)
	for _, test := range []struct {
		limit int64
		own   *int64
		want  int64
	}{{-1, &sixty, 60}, {-1, nil, 30}, {10, &sixty, 10}, {90, &sixty, 60}, {10, nil, 10}, {0, &sixty, 0}} {
		w := newWorld(t, rulesOf(soft(threshold(snapshot.MemoryAvailable, "1Gi"), 0)),
			spec{name: "hog", memory: gi, grace: test.own})
		w.rules.MaxPodGracePeriodSeconds = test.limit
		d := w.available(snapshot.MemoryAvailable, mi).after(time.Second)
		w.evicts(d, "hog")
		if got := d.Victims[0].GraceSeconds; got != test.want {
			t.Errorf("limit %d, own %v: grace %d, want %d", test.limit, test.own, got, test.want)
		}
	}
}

func TestD7InodesAreComparedWithInodes(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.NodeFsInodesFree, "1k")),
		spec{name: "many", inodes: 1_000_000, storage: gi}, spec{name: "few", inodes: 10})
	w.reclaim = []snapshot.Reclaim{{Device: snapshot.NodeDevice, Inodes: true, Started: start,
		Finished: start.Add(time.Second)}}
	w.evicts(w.available(snapshot.NodeFsInodesFree, 100).after(time.Second), "many")
}

func TestD8UnknownUsageIsNotTheWorst(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
		spec{name: "new", priority: 1e9, request: gi, noStats: true}, spec{name: "hog", priority: -100, memory: 20 * gi})
	w.evicts(w.available(snapshot.MemoryAvailable, 100*mi).after(time.Second), "hog")
}

func TestUnknownUsageIsNoReasonForDoingNothing(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
		spec{name: "b", priority: 2, noStats: true}, spec{name: "a", priority: 1, noStats: true})
	w.evicts(w.available(snapshot.MemoryAvailable, 100*mi).after(time.Second), "a")
}

func TestD9ForkBombGoesFirst(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.PIDAvailable, "1k")),
		spec{name: "bomb", priority: 10, pids: 30_000}, spec{name: "small", pids: 2}, spec{name: "smaller", pids: 1})
	w.signals[snapshot.PIDAvailable] = snapshot.Observation{Available: 999, Capacity: 32768}
	w.evicts(w.after(time.Second), "bomb")
}

func TestPIDsByPriorityAmongEquals(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.PIDAvailable, "1k")),
		spec{name: "high", priority: 10, pids: 900}, spec{name: "low", pids: 800}, spec{name: "lower", pids: 700})
	w.signals[snapshot.PIDAvailable] = snapshot.Observation{Available: 999, Capacity: 32768}
	w.evicts(w.after(time.Second), "low")
}

func TestD10BlindSignalDoesNotHideAnother(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi"), threshold(snapshot.ImageFsAvailable, "10Gi")),
		spec{name: "hog", memory: 20 * gi})
	d := w.available(snapshot.MemoryAvailable, 100*mi).after(time.Second)
	w.evicts(d, "hog")
	w.condition(d, v1.NodeMemoryPressure, true)
	c := d.Condition(v1.NodeDiskPressure)
	if len(c.UnknownSignals) != 1 || c.UnknownSignals[0] != snapshot.ImageFsAvailable ||
		!c.UnknownSince.Equal(w.now) {
		t.Errorf("disk condition %+v, want imagefs.available unknown", c)
	}
}

func TestD10BlindConditionStaysWhatItWas(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi"), threshold(snapshot.PIDAvailable, "100")))
	w.available(snapshot.MemoryAvailable, 100*mi).available(snapshot.PIDAvailable, 1000).after(time.Second)
	d := w.missing(snapshot.MemoryAvailable).missing(snapshot.PIDAvailable).after(24 * time.Hour)
	w.condition(d, v1.NodeMemoryPressure, true)
	w.condition(d, v1.NodePIDPressure, false)
	w.evicts(d)
	d = w.available(snapshot.MemoryAvailable, 2*gi).after(time.Second)
	w.condition(d, v1.NodeMemoryPressure, true)
	d = w.after(5 * time.Minute)
	w.condition(d, v1.NodeMemoryPressure, false)
}

func TestD11AbsentFieldsBreakNothing(t *testing.T) {
	w := newWorld(t, rulesOf())
	w.rules.LocalStorageLimits = true
	s := w.snapshot()
	for _, used := range []int64{-1, 5 * mi} {
		pod := violatorPod(fmt.Sprint("pod", used), 10*mi, used)
		pod.Usage.Containers = append(pod.Usage.Containers, pod.Usage.Containers...)
		s.Pods = append(s.Pods, pod)
	}
	if d, _ := Decide(s, w.rules, State{}); len(limitVictims(d.Victims)) != 0 {
		t.Errorf("evicted %v", names(limitVictims(d.Victims)))
	}
}

func TestD13ContainerFsHoldsFromTheFirst(t *testing.T) {
	nodefs := threshold(snapshot.NodeFsAvailable, "10Gi")
	thresholds, _ := Effective([]Threshold{nodefs}, layoutOf(true, true))
	w := newWorld(t, rulesOf(thresholds...), spec{name: "pod", disk: gi})
	w.layout = layoutOf(true, true)
	d := w.available(snapshot.ContainerFsAvailable, gi).after(time.Second)
	w.condition(d, v1.NodeDiskPressure, true)
	w.outcome(d, ReclaimNode)
}

func TestD16GraceClockPauses(t *testing.T) {
	w := newWorld(t, rulesOf(soft(threshold(snapshot.MemoryAvailable, "1Gi"), 2*time.Minute)),
		spec{name: "hog", memory: gi})
	for i := range 20 {
		amount := 900 * mi
		if i%11 == 10 {
			amount = 1100 * mi
		}
		d := w.available(snapshot.MemoryAvailable, amount).after(10 * time.Second)
		if len(d.Victims) > 0 {
			if elapsed := w.now.Sub(start); elapsed < 2*time.Minute {
				t.Errorf("evicted after %v", elapsed)
			}
			return
		}
	}
	t.Error("never evicted although the signal was low nearly all the time")
}

func TestD16GraceClockResets(t *testing.T) {
	for _, test := range []struct {
		name    string
		rule    Threshold
		clear   int64
		pause   time.Duration
		evicted bool
	}{
		{"short pause", threshold(snapshot.MemoryAvailable, "1Gi"), 2 * gi, 20 * time.Second, true},
		{"long pause", threshold(snapshot.MemoryAvailable, "1Gi"), 2 * gi, 40 * time.Second, false},
		{"short pause, clear by minimum reclaim", reclaiming(threshold(snapshot.MemoryAvailable, "1Gi"), "100Mi"), 2 * gi,
			20 * time.Second, false},
		{"short pause, minimum reclaim not reached", reclaiming(threshold(snapshot.MemoryAvailable, "1Gi"), "2Gi"), 2 * gi,
			20 * time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, rulesOf(soft(test.rule, time.Minute)), spec{name: "hog", memory: gi})
			w.available(snapshot.MemoryAvailable, 0).after(time.Second)
			w.evicts(w.after(50 * time.Second))
			w.available(snapshot.MemoryAvailable, test.clear).after(time.Second)
			w.after(test.pause)
			w.available(snapshot.MemoryAvailable, 0).after(time.Second)
			d := w.after(15 * time.Second)
			if got := len(d.Victims) > 0; got != test.evicted {
				t.Errorf("evicted %v, want %v", got, test.evicted)
			}
		})
	}
}

func TestD23OneLeakAmongSmallOverRequesters(t *testing.T) {
	w := newWorld(t, rulesOf(reclaiming(threshold(snapshot.MemoryAvailable, "1Gi"), "2Gi")))
	for i := range 30 {
		w.pods = append(w.pods, spec{name: fmt.Sprintf("small-%02d", i), request: 9 * mi, memory: 10 * mi})
	}
	w.pods = append(w.pods, spec{name: "leak", priority: 1, memory: 20 * gi})
	w.evicts(w.available(snapshot.MemoryAvailable, 100*mi).after(time.Second), "leak")
}

func TestD23GrowingLeakIsForeseen(t *testing.T) {
	for _, rate := range []int64{2, 20, 200} {
		w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")))
		for i := range 30 {
			w.pods = append(w.pods, spec{name: fmt.Sprintf("small-%02d", i), request: 9 * mi, memory: 10 * mi})
		}
		w.pods = append(w.pods, spec{name: "leak", priority: 1, memory: gi})
		free := 100*mi + 3*rate*10*mi
		for range 4 {
			w.evicts(w.available(snapshot.MemoryAvailable, free).after(10 * time.Second))
			free -= rate * 10 * mi
			w.pods[30].memory += rate * 10 * mi
		}
		w.evicts(w.available(snapshot.MemoryAvailable, free).after(10*time.Second), "leak")
	}
}

func TestForecastSparesPodsWithinTheirRequests(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")),
		spec{name: "over", request: 50 * mi, memory: 100 * mi},
		spec{name: "growing", priority: 1, request: 10 * gi, memory: gi})
	free := 400 * mi
	for range 3 {
		w.evicts(w.available(snapshot.MemoryAvailable, free).after(10 * time.Second))
		free -= 100 * mi
		w.pods[1].memory += 100 * mi
	}
	w.evicts(w.available(snapshot.MemoryAvailable, free-mi).after(10*time.Second), "over")
}

func TestD24MessageShowsTheTrigger(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.ImageFsAvailable, "7Gi"), threshold(snapshot.NodeFsAvailable, "10Gi")),
		spec{name: "pod", disk: gi, logs: gi})
	w.layout = layoutOf(true, false)
	w.available(snapshot.ImageFsAvailable, 20*gi)
	d := w.available(snapshot.NodeFsAvailable, 5*gi).after(time.Second)
	w.evicts(d, "pod")
	want := "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 5Gi. "
	if !strings.HasPrefix(d.Victims[0].Message, want) {
		t.Errorf("message %q, want %q first", d.Victims[0].Message, want)
	}
}

func TestD31SoftWithoutGraceStaysSoft(t *testing.T) {
	forty := int64(40)
	w := newWorld(t, rulesOf(soft(threshold(snapshot.MemoryAvailable, "1Gi"), 0)),
		spec{name: "hog", memory: gi, grace: &forty})
	d := w.available(snapshot.MemoryAvailable, mi).after(time.Second)
	w.evicts(d, "hog")
	if v := d.Victims[0]; v.Cause.Hard() || v.GraceSeconds != 40 {
		t.Errorf("hard %v, grace %d", v.Cause.Hard(), v.GraceSeconds)
	}
	if d.Condition(v1.NodeMemoryPressure).HardMet {
		t.Error("no hard threshold is met")
	}
}

func TestD32SlowSoftEvictionDoesNotBlockHard(t *testing.T) {
	hour := int64(3600)
	w := newWorld(t, rulesOf(soft(threshold(snapshot.MemoryAvailable, "2Gi"), 0),
		threshold(snapshot.MemoryAvailable, "1Gi")),
		spec{name: "first", priority: -1, memory: 100 * mi, grace: &hour}, spec{name: "second", memory: 20 * gi})
	w.rules.MaxPodGracePeriodSeconds = 3600
	w.evicts(w.available(snapshot.MemoryAvailable, 2*gi-50*mi).after(time.Second), "first")
	w.flight = []snapshot.InFlight{{UID: "first", State: snapshot.Stopping, Started: w.now, Changed: w.now,
		Deadline: w.now.Add(time.Hour)}}
	w.outcome(w.after(time.Minute), AwaitRelease)
	w.evicts(w.available(snapshot.MemoryAvailable, 100*mi).after(time.Second), "second")
}

func TestD36RestoredConditionsHold(t *testing.T) {
	rules := rulesOf(threshold(snapshot.MemoryAvailable, "1Gi"), threshold(snapshot.NodeFsAvailable, "1Gi"))
	w := newWorld(t, rules)
	w.state = w.state.WithConditions([]v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}, start)
	w.available(snapshot.MemoryAvailable, 20*gi)
	d := w.after(4 * time.Minute)
	w.condition(d, v1.NodeMemoryPressure, true)
	if d.Condition(v1.NodeMemoryPressure).Restored || !d.Condition(v1.NodeDiskPressure).Restored {
		t.Errorf("only conditions whose signals were all observed are confirmed: %+v", d.Conditions)
	}
	d = w.after(2 * time.Minute)
	w.condition(d, v1.NodeMemoryPressure, false)
	w.condition(d, v1.NodeDiskPressure, true)
	w.available(snapshot.NodeFsAvailable, 20*gi).after(time.Second)
	w.condition(w.after(6*time.Minute), v1.NodeDiskPressure, false)
}

// TestFileSystemWithoutInodesHoldsNoCondition: a file system that has no inodes never reports them. That neither keeps
// a condition True nor is reported to users.
func TestFileSystemWithoutInodesHoldsNoCondition(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "1Gi"), threshold(snapshot.NodeFsInodesFree, "1k")))
	w.state = w.state.WithConditions([]v1.NodeConditionType{v1.NodeDiskPressure}, start)
	w.signals[snapshot.NodeFsInodesFree] = snapshot.Observation{Err: snapshot.ErrNotReported}
	// If its space is not reported either, it is unknown whether it has inodes.
	w.condition(w.after(6*time.Minute), v1.NodeDiskPressure, true)
	w.available(snapshot.NodeFsAvailable, 20*gi)
	w.condition(w.after(time.Minute), v1.NodeDiskPressure, true)
	d := w.after(6 * time.Minute)
	w.condition(d, v1.NodeDiskPressure, false)
	if unknown := d.Condition(v1.NodeDiskPressure).UnknownSignals; len(unknown) > 0 {
		t.Errorf("signals %v are unknown, want none", unknown)
	}
	// Inodes that were observed once are unknown when they are not reported.
	w.available(snapshot.NodeFsInodesFree, 5000).after(time.Second)
	w.signals[snapshot.NodeFsInodesFree] = snapshot.Observation{Err: snapshot.ErrNotReported}
	d = w.after(time.Second)
	if unknown := d.Condition(v1.NodeDiskPressure).UnknownSignals; len(unknown) != 1 {
		t.Errorf("signals %v are unknown, want one", unknown)
	}
}

// TestSyncAtTheEndOfACondition: a condition ends by the passing of time alone, so that a round is due at that time.
func TestSyncAtTheEndOfACondition(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.PIDAvailable, "1k")))
	w.available(snapshot.PIDAvailable, 10).after(time.Second)
	d := w.available(snapshot.PIDAvailable, 5000).after(100 * time.Second)
	if want := 200 * time.Second; d.SyncAfter != want {
		t.Errorf("next round in %v, want %v", d.SyncAfter, want)
	}
	w.condition(w.after(200*time.Second-1), v1.NodePIDPressure, true)
	d = w.after(1)
	w.condition(d, v1.NodePIDPressure, false)
	if d.SyncAfter != 0 {
		t.Errorf("next round in %v without a reason", d.SyncAfter)
	}
}
