package policy

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func uidsOf(k *Ranking) (uids []types.UID) {
	for i := range k.Candidates {
		uids = append(uids, k.Candidates[i].Pod.UID)
	}
	return uids
}

// The explanation agrees with the decision: the same needs, their victims in the order of the ranking, and thresholds
// that are active exactly if a need is about their resource.
func TestAnExplanationAgreesWithTheDecision(t *testing.T) {
	explained := 0
	rapid.Check(t, func(t *rapid.T) {
		pods, rules, state := anySpecs(t, 12), anyRules(t), State{}
		for step := range 4 {
			s := anySnapshot(t, start.Add(time.Duration(step)*15*time.Second), pods)
			x := Explain(s, rules, state)
			var d Decision
			d, state = Decide(s, rules, state)
			var needed []Ranking
			for i := range x.Rankings {
				k := &x.Rankings[i]
				checkReasons(t, k)
				if k.Needed && !k.DryRun {
					needed = append(needed, *k)
				}
			}
			if len(needed) != len(d.Needs) {
				t.Fatalf("%d rankings of needs, %d needs", len(needed), len(d.Needs))
			}
			for i := range needed {
				if k, n := &needed[i], &d.Needs[i]; k.Signal != n.Signal || k.Hard != n.Hard {
					t.Fatalf("ranking of %s, hard %t; need of %s, hard %t", k.Signal, k.Hard, n.Signal, n.Hard)
				}
				explained += checkVictims(t, &needed[i], d.Victims)
			}
			for i := range x.Thresholds {
				if a := &x.Thresholds[i]; a.Active && (!a.Met || !a.Known) {
					t.Fatalf("%+v", a)
				}
			}
		}
	})
	if explained == 0 {
		t.Error("no victim was ranked")
	}
}

// checkVictims checks that the victims for a need are candidates, in the order of the ranking. It returns their number.
func checkVictims(t *rapid.T, k *Ranking, victims []Victim) (found int) {
	ranked, last := uidsOf(k), -1
	for i := range victims {
		v := &victims[i]
		if v.Cause != thresholdCause(k.Signal, k.Hard) {
			continue
		}
		place := slices.Index(ranked, v.Pod.UID)
		if place <= last {
			t.Fatalf("victim %s has place %d after %d", v.Pod.Name, place, last)
		}
		last = place
		found++
	}
	return found
}

// checkReasons checks that each candidate is not before the one that it follows, by the criterion that is its reason.
func checkReasons(t *rapid.T, k *Ranking) {
	if len(k.Candidates) == 1 && k.Candidates[0].Reason != OnlyCandidate {
		t.Fatalf("%+v", k.Candidates[0])
	}
	for i := 1; i < len(k.Candidates); i++ {
		a, b := &k.Candidates[i-1], &k.Candidates[i]
		inOrder := map[Criterion]bool{
			ByTermination: a.Terminating && !b.Terminating, ByRequest: a.AboveRequest && !b.AboveRequest,
			ByPriority: a.Pod.Priority < b.Pod.Priority, ByKnownUsage: a.Known && !b.Known,
			ByPreference: a.Preference > b.Preference, ByUsage: a.Usage-a.Request > b.Usage-b.Request,
			ByUID: a.Pod.UID < b.Pod.UID,
		}
		if !inOrder[b.Reason] {
			t.Fatalf("%s is after %s for the reason %s: %+v, %+v", b.Pod.Name, a.Pod.Name, b.Reason, a, b)
		}
	}
}

func TestAnExplanationHasRankingsOfThresholdsThatAreNotMet(t *testing.T) {
	rules := rulesOf(threshold(snapshot.MemoryAvailable, "1Gi"), soft(threshold(snapshot.PIDAvailable, "1k"), time.Minute))
	w := newWorld(t, rules,
		spec{name: "a", memory: 100 * mi, request: 200 * mi}, spec{name: "b", memory: 300 * mi, request: 200 * mi},
		spec{name: "c", memory: 10 * mi, priority: -1})
	w.available(snapshot.MemoryAvailable, 8*gi).available(snapshot.PIDAvailable, 20000)
	x := Explain(w.snapshot(), w.rules, State{})
	if len(x.Rankings) != 2 || x.Rankings[0].Needed || !x.Rankings[0].Hard || x.Rankings[1].Hard {
		t.Fatalf("%+v", x.Rankings)
	}
	var got []string
	for _, c := range x.Rankings[0].Candidates {
		got = append(got, c.Pod.Name+" "+string(c.Reason))
	}
	if want := []string{"c Priority", "b Priority", "a AboveRequest"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if m := x.Thresholds[0]; m.Amount != gi || m.Target != gi || m.Met || !m.Known {
		t.Errorf("%+v", m)
	}
}

func TestEvictionPreferenceHasValidValuesOnly(t *testing.T) {
	for _, tc := range []struct {
		preference, optOut string
		want               int
		words              []string
	}{
		{"7", "pid, memory,pid", 7, []string{"memory", "pid"}},
		{"1000", "secret", 0, nil},
		{"hunter2", "memory,", 0, nil},
	} {
		n, words := EvictionPreference(map[string]string{PreferenceAnnotation: tc.preference, OptOutAnnotation: tc.optOut})
		if n != tc.want || !slices.Equal(words, tc.words) {
			t.Errorf("%q, %q: %d, %q", tc.preference, tc.optOut, n, words)
		}
	}
	if n, words := EvictionPreference(nil); n != 0 || words != nil {
		t.Errorf("%d, %q", n, words)
	}
}
