package policy

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func forecasting(thresholds ...Threshold) *Rules {
	r := rulesOf(thresholds...)
	r.ReportOutlook = true
	return r
}

// anyOutlookRules draws rules that report everything, some of them with a minimum reclaim or in dry run.
func anyOutlookRules(t *rapid.T) *Rules {
	thresholds := anyThresholds(t)
	for i := range thresholds {
		if rapid.IntRange(0, 2).Draw(t, "minReclaim") == 0 {
			thresholds[i] = reclaiming(thresholds[i], "500Mi")
		}
		thresholds[i].DryRun = rapid.IntRange(0, 5).Draw(t, "dryRun") == 0
	}
	rules := forecasting(thresholds...)
	rules.ReportMemoryGrowth = true
	return rules
}

func isHardEnforced(t *Threshold) bool { return t.Hard() && !t.DryRun }

// TestAnOutlookAgreesWithTheDecision: whatever is observed, the outlook says of the snapshot what the decision about it
// says. It is the same beside the decision and in it, for another order of pods, after encoding its arguments, and
// whether growth is reported or not. It makes no difference to the decision.
func TestAnOutlookAgreesWithTheDecision(t *testing.T) {
	timed, levels := 0, map[Level]int{}
	rapid.Check(t, func(t *rapid.T) {
		pods, rules := anySpecs(t, 12), anyOutlookRules(t)
		silent, alone := *rules, *rules
		silent.ReportOutlook, alone.ReportMemoryGrowth = false, false
		aloneState := State{}
		leak, left := rapid.Bool().Draw(t, "leak"), 4*gi
		var state State
		for step := range 8 {
			for i := range pods {
				grown := rapid.Int64Range(-1, 9).Draw(t, "grown") * 10 * mi
				if leak {
					grown = max(mi, grown)
				}
				pods[i].memory += grown
				left -= grown
			}
			s := anySnapshot(t, start.Add(time.Duration(step)*8*time.Second), pods)
			if leak {
				s.Signals[snapshot.MemoryAvailable] = snapshot.Observation{Available: left, Capacity: 32 * gi}
			}
			got := Outlook(s, rules, state)
			checkSameOutlook(t, got, s, rules, state, int64(step))
			d, next := Decide(s, rules, state)
			if !reflect.DeepEqual(d.Outlook, got) {
				t.Fatalf("in the decision\n%+v, beside it\n%+v", d.Outlook, got)
			}
			other, otherNext := Decide(s, &silent, state)
			if d.Outlook = nil; !reflect.DeepEqual(d, other) || !reflect.DeepEqual(next, otherNext) {
				t.Fatalf("with the outlook\n%+v, without\n%+v", d, other)
			}
			other, aloneState = Decide(s, &alone, aloneState)
			if !reflect.DeepEqual(other.Outlook, got) {
				t.Fatalf("%+v, without the report of growth %+v", got, other.Outlook)
			}
			checkLevels(t, got, &d, rules, &next)
			timed += checkTimes(t, got, &d)
			for i := range got {
				levels[got[i].Level]++
			}
			state = next
		}
	})
	for _, level := range []Level{LevelUnknown, LevelCalm, LevelNear, LevelMet} {
		if levels[level] == 0 {
			t.Errorf("no signal was at level %q", level)
		}
	}
	if timed == 0 {
		t.Error("there never was a time")
	}
}

// checkSameOutlook compares with the outlook for another order of pods, and for arguments that were encoded.
func checkSameOutlook(t *rapid.T, got []SignalOutlook, s *snapshot.Snapshot, rules *Rules, state State, seed int64) {
	permuted := *s
	permuted.Pods, permuted.InFlight = shuffled(s.Pods, seed), shuffled(s.InFlight, seed)
	if other := Outlook(&permuted, rules, state); !reflect.DeepEqual(other, got) {
		t.Fatalf("%+v, in another order %+v", got, other)
	}
	decoded, err := recodedSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	decodedRules, err := recodedRules(*rules)
	if err != nil {
		t.Fatal(err)
	}
	if other := Outlook(decoded, &decodedRules, recoded(t, state)); !reflect.DeepEqual(other, got) {
		t.Fatalf("%+v, after encoding %+v", got, other)
	}
}

// checkLevels: a signal is at LevelMet exactly if the decision counts a hard threshold of it as met.
func checkLevels(t *rapid.T, list []SignalOutlook, d *Decision, rules *Rules, next *State) {
	enforced, _ := rules.split()
	met := map[snapshot.Signal]bool{}
	for i := range enforced.Thresholds {
		if th := &enforced.Thresholds[i]; th.Hard() && next.Enforced.Thresholds[i].indicatesPressure() {
			met[th.Signal] = true
		}
	}
	hardMet := map[string]bool{}
	for i := range list {
		o := &list[i]
		ofSignal := func(th Threshold) bool { return th.Signal == o.Signal && isHardEnforced(&th) }
		if i > 0 && list[i-1].Signal >= o.Signal || !slices.ContainsFunc(rules.Thresholds, ofSignal) {
			t.Fatalf("%+v", list)
		}
		if (o.Level == LevelMet) != met[o.Signal] || o.Known && (o.Level == LevelMet) != (o.Headroom < 0) ||
			o.Known && o.Level == LevelUnknown || o.Headroom != o.Available-o.Threshold {
			t.Fatalf("met %v: %+v", met[o.Signal], o)
		}
		if o.Level == LevelMet {
			hardMet[string(o.Signal.Condition())] = true
		}
		delete(met, o.Signal)
	}
	if len(met) > 0 {
		t.Fatalf("%v are met and have no outlook", met)
	}
	for i := range d.Conditions {
		if c := &d.Conditions[i]; c.HardMet != hardMet[string(c.Type)] {
			t.Fatalf("condition %+v, outlook %+v", c, list)
		}
	}
	for i := range d.Needs {
		n := &d.Needs[i]
		if n.Hard && !slices.ContainsFunc(list, func(o SignalOutlook) bool {
			return o.Signal == n.Signal && o.Level == LevelMet
		}) {
			t.Fatalf("need %+v, outlook %+v", n, list)
		}
	}
}

// checkTimes: growth and time are those of MemoryGrowth. It returns how many times there are.
func checkTimes(t *rapid.T, list []SignalOutlook, d *Decision) (timed int) {
	for i := range list {
		o := &list[i]
		if (o.Level == LevelNear) != (o.TimeToThreshold != nil && *o.TimeToThreshold <= NearHorizon) {
			t.Fatalf("%+v", o)
		}
		j := slices.IndexFunc(d.Growth.Thresholds, func(g ThresholdGrowth) bool { return g.Signal == o.Signal })
		if j < 0 {
			if o.Growth != 0 || o.TimeToThreshold != nil {
				t.Fatalf("%+v", o)
			}
			continue
		}
		g := &d.Growth.Thresholds[j]
		if o.Growth != g.Rate {
			t.Fatalf("%+v, growth %+v", o, g)
		}
		if o.Level == LevelMet {
			if o.TimeToThreshold != nil {
				t.Fatalf("%+v", o)
			}
			continue
		}
		left, ok := g.MetWithin(outlookHorizon)
		if ok != (o.TimeToThreshold != nil) || ok && left != *o.TimeToThreshold {
			t.Fatalf("%+v, growth %+v", o, g)
		}
		if ok {
			timed++
		}
	}
	return timed
}

// TestALeakIsForeseen: with rounds every ten seconds, on a node with plenty of memory, the time to the threshold is
// right from a minute after the leak has begun until the threshold is met, and the level is near for the last five
// minutes. The leak is a pod, or a process that belongs to none.
func TestALeakIsForeseen(t *testing.T) {
	for _, rate := range []int64{5 * mi, 20 * mi} {
		for _, leak := range []string{"pod", "system"} {
			w := newWorld(t, forecasting(threshold(snapshot.MemoryAvailable, "100Mi")), spec{name: "leak", memory: gi},
				spec{name: "idle", memory: gi})
			free := 30 * gi
			w.available(snapshot.MemoryAvailable, free).after(0)
			crossing := w.now.Add(time.Duration(float64(free-100*mi) / float64(rate) * float64(time.Second)))
			var reached bool
			for begun := w.now; !reached; {
				free -= 10 * rate
				if leak == "pod" {
					w.pods[0].memory += 10 * rate
				}
				d := w.available(snapshot.MemoryAvailable, free).after(10 * time.Second)
				o, left := &d.Outlook[0], crossing.Sub(w.now)
				reached = left < 0
				switch {
				case reached:
					if o.Level != LevelMet || o.TimeToThreshold != nil {
						t.Fatalf("met: %+v", o)
					}
				case w.now.Sub(begun) > time.Minute:
					if near := left <= NearHorizon; o.TimeToThreshold == nil || (o.Level == LevelNear) != near ||
						(*o.TimeToThreshold-left).Abs() > time.Second {
						t.Fatalf("%s, %d bytes per second, %v before the crossing: %+v", leak, rate, left, o)
					}
				}
			}
		}
	}
}

// TestAMetThresholdIncludesItsMinimumReclaim: the headroom of a threshold that is met is what has to come free. While
// the signal is unknown the threshold stays met.
func TestAMetThresholdIncludesItsMinimumReclaim(t *testing.T) {
	w := newWorld(t, forecasting(reclaiming(threshold(snapshot.NodeFsAvailable, "1Gi"), "500Mi")))
	if d := w.after(time.Second); len(d.Outlook) != 0 {
		t.Errorf("never observed: %+v", d.Outlook)
	}
	for _, test := range []struct {
		available, threshold int64
		level                Level
	}{
		{2 * gi, gi, LevelCalm}, {gi, gi, LevelCalm}, {gi - 1, gi + 500*mi, LevelMet}, {gi + 400*mi, gi + 500*mi, LevelMet},
		{-1, 0, LevelMet}, {gi + 400*mi, gi + 500*mi, LevelMet}, {gi + 500*mi, gi, LevelCalm}, {-1, 0, LevelUnknown},
	} {
		if w.missing(snapshot.NodeFsAvailable); test.available >= 0 {
			w.available(snapshot.NodeFsAvailable, test.available)
		}
		o := w.after(time.Second).Outlook[0]
		if o.Level != test.level || o.Threshold != test.threshold || o.Known != (test.available >= 0) ||
			o.Growth != 0 || o.TimeToThreshold != nil || o.Known && !o.Observed.Equal(w.now) {
			t.Errorf("%d available: %+v", test.available, o)
		}
	}
}

// TestMemoryIsSampledForTheOutlook: memory is sampled far from all thresholds, no snapshot is calm, and thresholds that
// are soft or in dry run have no outlook.
func TestMemoryIsSampledForTheOutlook(t *testing.T) {
	far := threshold(snapshot.MemoryAvailable, "100Mi")
	rules := forecasting(far, soft(far, time.Minute), dry(threshold(snapshot.PIDAvailable, "1Ki")))
	w := newWorld(t, rules, spec{name: "leak", memory: gi})
	w.available(snapshot.MemoryAvailable, 20*gi).available(snapshot.PIDAvailable, 100)
	if Calm(w.snapshot(), rules) {
		t.Error("calm")
	}
	d := w.after(time.Second)
	if len(d.Outlook) != 1 || d.Growth != nil || d.SyncAfter != 0 || w.state.Enforced.MemorySamples[0] == nil {
		t.Errorf("%+v", d)
	}
}
