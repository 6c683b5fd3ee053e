package policy

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// decided makes a decision about a node whose pods have annotations: preference and opt-out, by name.
func (w *world) decided(d time.Duration, annotations map[string][2]string) Decision {
	w.now = w.now.Add(d)
	s := w.snapshot()
	for i := range s.Pods {
		values := annotations[s.Pods[i].Name]
		annotated(s.Pods[i], values[0], values[1])
	}
	var decision Decision
	decision, w.state = Decide(s, w.rules, w.state)
	return decision
}

func protecting(thresholds ...Threshold) *Rules {
	rules := rulesOf(thresholds...)
	rules.Protection = Protection{Namespaces: []string{"ns"}, MaxPods: 2, MaxMemory: 100 * snapshot.Bytes(gi),
		MaxDelay: 30 * time.Second}
	return rules
}

func TestPreferenceDecidesAmongEquals(t *testing.T) {
	pods := []spec{{name: "a", memory: 3 * gi}, {name: "b", memory: 2 * gi}, {name: "c", memory: 4 * gi, priority: 5}}
	for _, tc := range []struct {
		annotations map[string][2]string
		want        string
	}{
		{nil, "a"},
		{map[string][2]string{"b": {"1", ""}}, "b"},
		{map[string][2]string{"a": {"-1", ""}}, "b"},
		{map[string][2]string{"a": {"-100", ""}, "b": {"-100", ""}, "c": {"100", ""}}, "a"},
	} {
		w := newWorld(t, protecting(threshold(snapshot.MemoryAvailable, "1Gi")), pods...)
		w.available(snapshot.MemoryAvailable, 500*mi)
		w.evicts(w.decided(time.Second, tc.annotations), tc.want)
	}
}

func TestSoftThresholdsSkipOptedOutPods(t *testing.T) {
	w := newWorld(t, protecting(soft(threshold(snapshot.MemoryAvailable, "2Gi"), 0)), spec{name: "hog", memory: 20 * gi},
		spec{name: "small", memory: mi})
	optOut := map[string][2]string{"hog": {"", "memory"}}
	w.available(snapshot.MemoryAvailable, gi)
	d := w.decided(time.Second, optOut)
	w.evicts(d, "small")
	if d.Needs[0].PassedOver != 1 {
		t.Errorf("needs %+v, want one pod passed over", d.Needs)
	}
	w.pods = w.pods[:1]
	w.outcome(w.decided(time.Hour, optOut), NoCandidate)
}

func TestHardThresholdDelaysEvictionOfOptedOutPods(t *testing.T) {
	w := newWorld(t, protecting(threshold(snapshot.MemoryAvailable, "1Gi")),
		spec{name: "hog", memory: 20 * gi}, spec{name: "a", memory: 2 * gi}, spec{name: "b", memory: 2 * gi},
		spec{name: "c", memory: 2 * gi})
	optOut := map[string][2]string{"hog": {"", "memory"}}
	w.available(snapshot.MemoryAvailable, 500*mi)
	w.evicts(w.decided(time.Second, optOut), "a")
	// A need that ends and recurs is the same need.
	w.pods = append(w.pods[:1], w.pods[2:]...)
	w.evicts(w.available(snapshot.MemoryAvailable, 2*gi).decided(10*time.Second, optOut))
	w.available(snapshot.MemoryAvailable, 500*mi)
	w.evicts(w.decided(10*time.Second, optOut), "b")
	w.pods = append(w.pods[:1], w.pods[2:]...)
	w.evicts(w.decided(10*time.Second, optOut), "hog")
}

func TestOptedOutPodIsEvictedIfOthersAreNotEnough(t *testing.T) {
	w := newWorld(t, protecting(threshold(snapshot.MemoryAvailable, "1Gi")),
		spec{name: "hog", memory: 20 * gi}, spec{name: "a", memory: 100 * mi}, spec{name: "b", memory: 100 * mi})
	w.available(snapshot.MemoryAvailable, 500*mi)
	w.evicts(w.decided(time.Second, map[string][2]string{"hog": {"", "memory"}}), "hog")
}

func TestOptingOutOfOneResourceIsNotOptingOutOfAnother(t *testing.T) {
	w := newWorld(t, protecting(threshold(snapshot.MemoryAvailable, "1Gi")), spec{name: "hog", memory: 20 * gi},
		spec{name: "a", memory: 2 * gi})
	w.available(snapshot.MemoryAvailable, 500*mi)
	w.evicts(w.decided(time.Second, map[string][2]string{"hog": {"", "pid,nodefs"}}), "hog")
}

// TestOptOutOfHardThresholdsIsBounded: a hard threshold with candidates has victims, whatever the annotations of pods:
// the same need is served as without annotations.
func TestOptOutOfHardThresholdsIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rulesOf(threshold(snapshot.MemoryAvailable, "2Gi"))
		rules.Protection = anyProtection(t)
		s := anySnapshot(t, start, anySpecs(t, 8))
		anyAnnotations(t, s)
		s.Signals[snapshot.MemoryAvailable] = snapshot.Observation{Available: rapid.Int64Range(0, 19).Draw(t,
			"available") * 100 * mi, Capacity: 32 * gi}
		plain := *rules
		plain.Protection = Protection{}
		d1, _ := Decide(s, rules, State{})
		d2, _ := Decide(s, &plain, State{})
		if len(d1.Needs) != len(d2.Needs) || d1.Needs[0].Outcome != d2.Needs[0].Outcome {
			t.Fatalf("%+v, and without annotations %+v", d1.Needs, d2.Needs)
		}
		if (len(d1.Victims) > 0) != (len(d2.Victims) > 0) {
			t.Fatalf("victims %v, and without annotations %v", names(d1.Victims), names(d2.Victims))
		}
	})
}

// TestOptOutStillCoversTheNeed: while others can cover the need, no pod that opted out is chosen. If they cannot, the
// need is covered as it is without annotations.
func TestOptOutStillCoversTheNeed(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t, start, anySpecs(t, 10))
		s.InFlight = nil
		anyAnnotations(t, s)
		rules := rulesOf()
		rules.Protection = Protection{Namespaces: []string{"*"}, MaxPods: 5, MaxMemory: 100 * snapshot.Bytes(gi),
			MaxDelay: time.Minute}
		n := &need{group: memoryGroup, signal: snapshot.MemoryAvailable, signals: []snapshot.Signal{snapshot.MemoryAvailable},
			hard: true}
		r := &round{snapshot: s, rules: rules, last: &rulesState{}, next: &rulesState{}, decision: &Decision{}}
		list := r.applyAnnotations(n, candidates(n, s, &pending{}, &growth{}), &NeedDecision{})
		if len(list) == 0 {
			return
		}
		base := rapid.Int64Range(1, 40).Draw(t, "need") * 50 * mi
		chosen := r.choose(n, list, r.demandOf(base)).pods
		var sum, all, others int64
		optedOutChosen := false
		for i := range list {
			all += list[i].gain(0)
			if !list[i].optedOut {
				others += list[i].gain(0)
			}
		}
		for i := range chosen {
			sum += chosen[i].gain(0)
			optedOutChosen = optedOutChosen || chosen[i].optedOut
		}
		if sum < min(base, all) {
			t.Fatalf("covers %d of %d", sum, min(base, all))
		}
		if optedOutChosen && others >= base {
			t.Fatal("a pod that opted out is chosen though others would do")
		}
		switch {
		case optedOutChosen:
			seen["chosen"]++
		case others < all:
			seen["passed over"]++
		}
	})
	if seen["chosen"] == 0 || seen["passed over"] == 0 {
		t.Errorf("seen %v; the test shows nothing", seen)
	}
}
