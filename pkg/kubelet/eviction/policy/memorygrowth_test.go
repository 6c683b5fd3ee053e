package policy

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func reporting(thresholds ...Threshold) *Rules {
	r := rulesOf(thresholds...)
	r.ReportMemoryGrowth = true
	return r
}

// TestGrowthIsReportedFarFromThresholds: memory is sampled and growth reported while all thresholds are far away, and
// only if the rules say so.
func TestGrowthIsReportedFarFromThresholds(t *testing.T) {
	far := threshold(snapshot.MemoryAvailable, "100Mi")
	for name, rules := range map[string]*Rules{"reported": reporting(far), "not": rulesOf(far)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rules, spec{name: "leak", memory: gi}, spec{name: "idle", memory: gi})
			w.available(snapshot.MemoryAvailable, 20*gi)
			if got := Calm(w.snapshot(), rules); got == rules.ReportMemoryGrowth {
				t.Errorf("calm: %v", got)
			}
			d := w.grow(30, mi, map[string]int64{"leak": 50 * mi})
			if !rules.ReportMemoryGrowth {
				if d.Growth != nil || w.state.Enforced.MemorySamples != (history{}) {
					t.Errorf("%+v, %d samples", d.Growth, len(w.state.Enforced.MemorySamples))
				}
				return
			}
			if d.Growth == nil || len(d.Growth.Pods) != 1 || len(d.Growth.Thresholds) != 1 {
				t.Fatalf("growth %+v", d.Growth)
			}
			pod, at := d.Growth.Pods[0], d.Growth.Thresholds[0]
			if pod.Pod.Name != "leak" || pod.Rate != float64(50*mi) || !pod.AboveRequest {
				t.Errorf("pod %+v", pod)
			}
			if at.Distance != 20*gi-30*51*mi-100*mi || at.Rate != float64(51*mi) || at.Threshold.String() != "100Mi" {
				t.Errorf("threshold %+v", at)
			}
		})
	}
}

// TestGrowthIsReportedOfHardThresholds: soft thresholds and those in dry run do not count, and of two hard ones the
// nearer does.
func TestGrowthIsReportedOfHardThresholds(t *testing.T) {
	hard := threshold(snapshot.MemoryAvailable, "100Mi")
	pods := threshold(snapshot.AllocatableMemoryAvailable, "1Gi")
	other := threshold(snapshot.AllocatableMemoryAvailable, "2Gi")
	disk := threshold(snapshot.NodeFsAvailable, "3Gi")
	w := newWorld(t, reporting(soft(hard, time.Minute), dry(hard), disk, pods, other))
	w.available(snapshot.MemoryAvailable, 20*gi).available(snapshot.AllocatableMemoryAvailable, 10*gi)
	d := w.available(snapshot.NodeFsAvailable, 10*gi).after(time.Second)
	if list := d.Growth.Thresholds; len(list) != 1 || list[0].Signal != snapshot.AllocatableMemoryAvailable ||
		list[0].Distance != 8*gi || list[0].Rate != 0 {
		t.Errorf("%+v", list)
	}
	w.missing(snapshot.AllocatableMemoryAvailable)
	if d := w.after(time.Second); len(d.Growth.Thresholds) != 0 {
		t.Errorf("not observed, %+v", d.Growth.Thresholds)
	}
}

// TestABurstIsNoGrowth: a pod that has just been started counts after steadySpan, a single increase never, and neither
// asks for earlier rounds.
func TestABurstIsNoGrowth(t *testing.T) {
	w := newWorld(t, reporting(threshold(snapshot.MemoryAvailable, "100Mi")), spec{name: "idle", memory: gi})
	w.available(snapshot.MemoryAvailable, 20*gi)
	w.grow(30, 0, nil)
	w.pods = append(w.pods, spec{name: "young", memory: mi})
	young := map[string]int64{"young": 100 * mi}
	var known time.Duration
	for begun := w.now; known == 0; {
		d := w.grow(1, 0, young)
		switch after := w.now.Sub(begun); {
		case len(d.Growth.Pods) > 0:
			known = after
		case after <= steadySpan && (d.SyncAfter != 0 || d.Growth.Thresholds[0].Rate != 0) || after > 2*steadySpan:
			t.Fatalf("%v after its start: %+v", after, d.Growth)
		}
	}
	if known < steadySpan {
		t.Errorf("known after %v", known)
	}
	w.grow(40, 0, nil)
	if d := w.grow(1, 500*mi, map[string]int64{"idle": 500 * mi}); len(d.Growth.Pods) != 0 ||
		d.Growth.Thresholds[0].Rate != 0 {
		t.Errorf("a single increase: %+v", d.Growth)
	}
}

// TestFluctuationsOfPodsCancelOut: what one pod gives back while another one grows is no growth of the node.
func TestFluctuationsOfPodsCancelOut(t *testing.T) {
	w := newWorld(t, reporting(threshold(snapshot.MemoryAvailable, "100Mi")),
		spec{name: "leak", memory: gi}, spec{name: "other", memory: 20 * gi})
	d := w.available(snapshot.MemoryAvailable, gi).grow(40, 0, map[string]int64{"leak": 50 * mi, "other": -50 * mi})
	if len(d.Growth.Pods) != 1 || d.Growth.Thresholds[0].Rate != 0 || d.SyncAfter != 0 {
		t.Errorf("%+v", d.Growth)
	}
}

// TestRoundsAreMadeSoonerWhileAPodGrows: with rounds every ten seconds, a pod that grows steadily causes rounds at
// other intervals, from which the growth is confirmed; not while the threshold is far.
func TestRoundsAreMadeSoonerWhileAPodGrows(t *testing.T) {
	for rate, want := range map[int64]time.Duration{50 * mi: denseInterval, mi: 0} {
		w := newWorld(t, reporting(threshold(snapshot.MemoryAvailable, "100Mi")), spec{name: "leak", memory: gi})
		used := func(d time.Duration) Decision {
			grown := rate * int64(d/time.Second)
			w.pods[0].memory += grown
			return w.available(snapshot.MemoryAvailable, w.signals[snapshot.MemoryAvailable].Available-grown).after(d)
		}
		w.available(snapshot.MemoryAvailable, 20*gi)
		for _, d := range []time.Duration{10 * time.Second, 10 * time.Second, 10 * time.Second} {
			if got := used(d); len(got.Growth.Pods) != 0 {
				t.Errorf("unconfirmed: %+v", got.Growth)
			}
		}
		got := used(4 * time.Second)
		if got.SyncAfter != want {
			t.Errorf("%d bytes per second: next round after %v, want %v", rate, got.SyncAfter, want)
		}
		if got = used(4 * time.Second); len(got.Growth.Pods) != 1 {
			t.Errorf("%d bytes per second, confirmed: %+v", rate, got.Growth)
		}
	}
}

// TestTimeToAThreshold: the bounds are inclusive, and a threshold that is met is none.
func TestTimeToAThreshold(t *testing.T) {
	for _, test := range []struct {
		distance int64
		rate     float64
		left     time.Duration
		ok       bool
	}{
		{100, 10, 10 * time.Second, true}, {101, 10, 0, false}, {0, 10, 0, true}, {-1, 10, 0, false}, {1, 0, 0, false},
		{1 << 62, 1e-300, 0, false},
	} {
		g := ThresholdGrowth{Distance: test.distance, Rate: test.rate}
		if left, ok := g.MetWithin(10 * time.Second); left != test.left || ok != test.ok {
			t.Errorf("%d bytes at %v: %v, %v", test.distance, test.rate, left, ok)
		}
	}
}

// TestReportedGrowthIsOfTheSnapshot: whatever is observed, the report names pods of the snapshot that do not terminate,
// in order, does not depend on the order of the input, and has no effect on what is done in a first round.
func TestReportedGrowthIsOfTheSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods, plain := anySpecs(t, 12), rulesOf(anyThresholds(t)...)
		rules := *plain
		rules.ReportMemoryGrowth = true
		var m1, m2 State
		for step := range 6 {
			for i := range pods {
				pods[i].memory += rapid.Int64Range(-1, 9).Draw(t, "grown") * mi
			}
			a := anySnapshot(t, start.Add(time.Duration(step)*6*time.Second), pods)
			b := *a
			b.Pods = shuffled(a.Pods, int64(step))
			var d1, d2 Decision
			if step == 0 {
				want, _ := Decide(a, plain, State{})
				got, _ := Decide(a, &rules, State{})
				if got.Growth = nil; !reflect.DeepEqual(got, want) {
					t.Fatalf("with the report %+v, without %+v", got, want)
				}
			}
			d1, m1 = Decide(a, &rules, m1)
			d2, m2 = Decide(&b, &rules, m2)
			if fmt.Sprint(describe(d1.Growth)) != fmt.Sprint(describe(d2.Growth)) {
				t.Fatalf("%v, in another order %v", describe(d1.Growth), describe(d2.Growth))
			}
			ending := terminating(a)
			for i, p := range d1.Growth.Pods {
				if ending[p.Pod.UID] || p.Rate <= 0 || i > 0 && p.Pod.UID <= d1.Growth.Pods[i-1].Pod.UID {
					t.Fatalf("%v", describe(d1.Growth))
				}
			}
		}
	})
}

func describe(g *MemoryGrowth) (list []string) {
	for _, p := range g.Pods {
		list = append(list, fmt.Sprintf("%s %.3f %v", p.Pod.UID, p.Rate, p.AboveRequest))
	}
	for _, at := range g.Thresholds {
		list = append(list, fmt.Sprintf("%s %v %d %.3f", at.Signal, at.Threshold, at.Distance, at.Rate))
	}
	return list
}
