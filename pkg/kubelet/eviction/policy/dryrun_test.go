package policy

import (
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func dry(t Threshold) Threshold {
	t.DryRun = true
	return t
}

func TestDryRunSaysWhatItWouldDo(t *testing.T) {
	w := newWorld(t, rulesOf(dry(threshold(snapshot.MemoryAvailable, "1Gi")),
		dry(threshold(snapshot.NodeFsAvailable, "10Gi"))),
		spec{name: "hog", memory: 20 * gi}, spec{name: "writer", memory: mi, disk: 50 * gi})
	w.available(snapshot.MemoryAvailable, 500*mi).available(snapshot.NodeFsAvailable, 5*gi)
	d := w.after(time.Second)
	w.evicts(d)
	w.condition(d, v1.NodeMemoryPressure, false)
	w.condition(d, v1.NodeDiskPressure, false)
	if len(d.Needs) != 0 || len(d.Reclaims) != 0 || d.SyncAfter != 0 {
		t.Errorf("a dry run changes the decision: %+v", d)
	}
	if got := names(d.DryRun.Victims); len(got) != 1 || got[0] != "hog" || d.DryRun.Victims[0].Message == "" {
		t.Errorf("dry run: %+v, want hog as victim", d.DryRun)
	}
	d = w.available(snapshot.MemoryAvailable, 20*gi).after(10 * time.Second)
	if got := names(d.DryRun.Victims); len(got) != 1 || got[0] != "writer" || len(d.DryRun.Reclaims) != 1 ||
		!d.DryRun.Reclaims[0].Images {
		t.Errorf("dry run: %+v, want a reclaim of images, and writer as victim", d.DryRun)
	}
}

// TestDryRunKeepsGracePeriods: a threshold in dry run has a grace period of its own, as if it were enforced.
func TestDryRunKeepsGracePeriods(t *testing.T) {
	w := newWorld(t, rulesOf(dry(soft(threshold(snapshot.MemoryAvailable, "2Gi"), time.Minute))),
		spec{name: "hog", memory: 20 * gi})
	w.available(snapshot.MemoryAvailable, gi)
	for range 6 {
		if d := w.after(10 * time.Second); len(d.DryRun.Victims) != 0 {
			t.Fatalf("within the grace period: %+v", d.DryRun)
		}
	}
	if d := w.after(10 * time.Second); len(d.DryRun.Victims) != 1 {
		t.Errorf("after the grace period: %+v", d.DryRun)
	}
}

func TestDryRunOfDerivedThresholds(t *testing.T) {
	thresholds, _ := Effective([]Threshold{dry(threshold(snapshot.NodeFsAvailable, "1Gi")),
		threshold(snapshot.ImageFsAvailable, "1Gi")}, layoutOf(false, false))
	for _, th := range thresholds {
		if th.DryRun != (th.Signal != snapshot.ImageFsAvailable) {
			t.Errorf("%s in dry run: %v", th.Signal, th.DryRun)
		}
	}
	if len(thresholds) != 3 {
		t.Errorf("%d thresholds, want 3", len(thresholds))
	}
}

func TestDryRunOfLocalStorageLimits(t *testing.T) {
	rules := rulesOf()
	rules.LocalStorageLimits, rules.LocalStorageDryRun = true, true
	s := &snapshot.Snapshot{Taken: start, Signals: snapshot.Unobserved(),
		Pods: []snapshot.Pod{violatorPod("limited", mi, 2*mi)}}
	d, _ := Decide(s, rules, State{})
	if len(d.Victims) != 0 || len(limitVictims(d.DryRun.Victims)) != 1 {
		t.Errorf("evicted %d, in dry run %d; want 0 and 1", len(d.Victims), len(d.DryRun.Victims))
	}
	rules.LocalStorageLimits = false
	if d, _ := Decide(s, rules, State{}); len(d.Victims)+len(d.DryRun.Victims) != 0 {
		t.Error("limits that are off have victims in dry run")
	}
}

func TestDryRunOfEverythingDoesNothing(t *testing.T) {
	said := 0
	rapid.Check(t, func(t *rapid.T) {
		rules := rulesOf(anyThresholds(t)...)
		for i := range rules.Thresholds {
			rules.Thresholds[i].DryRun = true
		}
		rules.LocalStorageLimits, rules.LocalStorageDryRun = true, true
		pods := anySpecs(t, 8)
		var m State
		for step := range 4 {
			s := anySnapshot(t, start.Add(time.Duration(step)*15*time.Second), pods)
			s.Pods = append(s.Pods, violatorPod("limited", mi, 2*mi))
			var d Decision
			d, m = Decide(s, rules, m)
			if len(d.Victims)+len(d.Reclaims)+len(d.Needs) > 0 {
				t.Fatalf("a dry run begins something: %+v", d)
			}
			for _, c := range d.Conditions {
				if c.True || c.HardMet {
					t.Fatalf("a condition because of a dry run: %+v", c)
				}
			}
			said += len(d.DryRun.Victims)
		}
	})
	if said == 0 {
		t.Error("no decision had a dry run; the test shows nothing")
	}
}

func TestDryRunChangesNothingForOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		with, without := rulesOf(), rulesOf()
		for _, th := range anyThresholds(t) {
			if th.DryRun = rapid.Bool().Draw(t, "dry"); !th.DryRun {
				without.Thresholds = append(without.Thresholds, th)
			}
			with.Thresholds = append(with.Thresholds, th)
		}
		pods := anySpecs(t, 8)
		var m1, m2 State
		for step := range 4 {
			s := anySnapshot(t, start.Add(time.Duration(step)*15*time.Second), pods)
			var d1, d2 Decision
			d1, m1 = Decide(s, with, m1)
			d2, m2 = Decide(s, without, m2)
			d1.DryRun = DryRun{}
			enforced := m1.Enforced
			// An empty list of thresholds may be nil or not.
			if len(enforced.Thresholds)+len(m2.Enforced.Thresholds) == 0 {
				enforced.Thresholds = m2.Enforced.Thresholds
			}
			if !reflect.DeepEqual(d1, d2) || !reflect.DeepEqual(enforced, m2.Enforced) {
				t.Fatalf("with thresholds in dry run:\n%+v\nwithout them:\n%+v", d1, d2)
			}
		}
	})
}
