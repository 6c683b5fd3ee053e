package policy

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func anySpec(i int) *rapid.Generator[spec] {
	return rapid.Custom(func(t *rapid.T) spec {
		return spec{
			name:     fmt.Sprintf("pod-%02d", i),
			priority: rapid.Int32Range(-2, 2).Draw(t, "priority"),
			request:  rapid.Int64Range(0, 4).Draw(t, "request") * 100 * mi,
			storage:  rapid.Int64Range(0, 4).Draw(t, "storage") * 100 * mi,
			memory:   rapid.Int64Range(-1, 8).Draw(t, "memory") * 70 * mi,
			disk:     rapid.Int64Range(-1, 8).Draw(t, "disk") * 70 * mi,
			inodes:   rapid.Int64Range(-1, 8).Draw(t, "inodes") * 1000,
			pids:     rapid.Int64Range(-1, 8).Draw(t, "pids") * 500,
			noStats:  rapid.IntRange(0, 9).Draw(t, "noStats") == 0,
			static:   rapid.IntRange(0, 9).Draw(t, "static") == 0,
		}
	})
}

func anySpecs(t *rapid.T, atMost int) []spec {
	n := rapid.IntRange(0, atMost).Draw(t, "pods")
	list := make([]spec, 0, n)
	for i := range n {
		list = append(list, anySpec(i).Draw(t, "pod"))
	}
	return list
}

func anyThresholds(t *rapid.T) []Threshold {
	var list []Threshold
	for _, sig := range snapshot.AllSignals() {
		if rapid.Bool().Draw(t, "hard") {
			list = append(list, threshold(sig, "1Gi"))
		}
		if rapid.Bool().Draw(t, "soft") {
			list = append(list, soft(threshold(sig, "2Gi"), time.Duration(rapid.IntRange(0, 3).Draw(t, "grace"))*20*time.Second))
		}
	}
	return list
}

func anySignals(t *rapid.T) [snapshot.NumSignals]snapshot.Observation {
	all := snapshot.Unobserved()
	for _, sig := range snapshot.AllSignals() {
		if rapid.IntRange(0, 5).Draw(t, "missing") > 0 {
			all[sig] = snapshot.Observation{Available: rapid.Int64Range(0, 30).Draw(t, "available") * 100 * mi,
				Capacity: 32 * gi}
		}
	}
	return all
}

func anySnapshot(t *rapid.T, now time.Time, pods []spec) *snapshot.Snapshot {
	s := &snapshot.Snapshot{
		Taken: now, WallTime: wallTime(now), Signals: anySignals(t),
		Layout: layoutOf(rapid.Bool().Draw(t, "dedicated"), rapid.Bool().Draw(t, "split")),
	}
	s.RuntimeSilent = rapid.IntRange(0, 5).Draw(t, "silent") == 0
	for _, p := range pods {
		s.Pods = append(s.Pods, p.pod(now))
		if rapid.IntRange(0, 9).Draw(t, "inFlight") == 0 {
			s.InFlight = append(s.InFlight, snapshot.InFlight{
				UID: s.Pods[len(s.Pods)-1].UID, Hard: rapid.Bool().Draw(t, "hard"),
				State:   snapshot.InFlightState(rapid.IntRange(0, 2).Draw(t, "state")),
				Started: now.Add(-time.Minute), Changed: now.Add(-time.Second),
				Deadline: now.Add(time.Duration(rapid.IntRange(-60, 60).Draw(t, "left")) * time.Second),
			})
		}
	}
	return s
}

func shuffled[T any](list []T, seed int64) []T {
	c := slices.Clone(list)
	rand.New(rand.NewSource(seed)).Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
	return c
}

func TestOrderOfInputMakesNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods, rules := anySpecs(t, 12), rulesOf(anyThresholds(t)...)
		var m1, m2 State
		for step := range 4 {
			a := anySnapshot(t, start.Add(time.Duration(step)*15*time.Second), pods)
			b := *a
			seed := rapid.Int64().Draw(t, "seed")
			b.Pods, b.InFlight = shuffled(a.Pods, seed), shuffled(a.InFlight, seed)
			var d1, d2 Decision
			d1, m1 = Decide(a, rules, m1)
			d2, m2 = Decide(&b, rules, m2)
			if got, want := fmt.Sprint(names(d2.Victims)), fmt.Sprint(names(d1.Victims)); got != want {
				t.Fatalf("victims %s, and %s for the same pods in another order", want, got)
			}
			if !reflect.DeepEqual(d1.Conditions, d2.Conditions) || !reflect.DeepEqual(d1.Needs, d2.Needs) ||
				d1.SyncAfter != d2.SyncAfter {
				t.Fatalf("decisions differ:\n%+v\n%+v", d1, d2)
			}
		}
	})
}

func TestDecideChangesNoneOfItsArguments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods, rules := anySpecs(t, 6), rulesOf(anyThresholds(t)...)
		m := State{}
		for step := range 3 {
			s := anySnapshot(t, start.Add(time.Duration(step)*15*time.Second), pods)
			d1, m1 := Decide(s, rules, m)
			d2, m2 := Decide(s, rules, m)
			if !reflect.DeepEqual(d1, d2) || !reflect.DeepEqual(m1, m2) {
				t.Fatal("the same arguments gave another decision")
			}
			m = m1
		}
	})
}

// TestVictimsAreASubsetOfStocks: stock evicts in the order of its ranking until the need is covered. With constant
// usage ours takes a subset of that which covers the need too, and in which no pod is superfluous.
func TestVictimsAreASubsetOfStocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := &need{group: memoryGroup, signal: snapshot.MemoryAvailable, hard: true}
		s := &snapshot.Snapshot{Taken: start}
		for _, p := range anySpecs(t, 30) {
			s.Pods = append(s.Pods, p.pod(start))
		}
		list := candidates(n, s, &pending{}, &growth{})
		base := rapid.Int64Range(1, 40).Draw(t, "need") * 50 * mi
		chosen := choose(list, demand{base: base, killTime: defaultTiming().KillTime, settling: defaultTiming().Settling})
		stock, sum := map[string]bool{}, int64(0)
		for i := 0; i < len(list) && sum < base; i++ {
			stock[list[i].pod.Name] = true
			sum += list[i].gain(0)
		}
		var ours int64
		for _, c := range chosen {
			if !stock[c.pod.Name] {
				t.Fatalf("%s is evicted, and would not be by stock", c.pod.Name)
			}
			ours += c.gain(0)
		}
		if reached := min(base, sum); ours < reached {
			t.Fatalf("covers %d of %d", ours, reached)
		}
		for _, c := range chosen {
			if len(chosen) > 1 && ours-c.gain(0) >= min(base, sum) {
				t.Fatalf("%s need not die", c.pod.Name)
			}
		}
		if !slices.IsSortedFunc(chosen, func(a, b candidate) int { return position(list, a) - position(list, b) }) {
			t.Fatal("not in the order of the ranking")
		}
	})
}

func position(list []candidate, c candidate) int {
	return slices.IndexFunc(list, func(o candidate) bool { return o.pod.UID == c.pod.UID })
}

// TestNoEvictionWithoutCause: critical pods and counted pods in flight are never victims, and no pod is while no
// threshold is met.
func TestNoEvictionWithoutCause(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods, rules := anySpecs(t, 12), rulesOf(anyThresholds(t)...)
		var m State
		for step := range 5 {
			s := anySnapshot(t, start.Add(time.Duration(step)*15*time.Second), pods)
			var d Decision
			d, m = Decide(s, rules, m)
			for _, v := range d.Victims {
				if v.Pod.Critical {
					t.Fatalf("%s is critical", v.Pod.Name)
				}
				o := s.Signals[v.Cause.Signal]
				if !o.Known() {
					t.Fatalf("evicted for %s, which is unknown", v.Cause.Signal)
				}
				if g, _ := groupOf(v.Cause.Signal, s.Layout); g.disk() && s.RuntimeSilent {
					t.Fatalf("evicted for %s, while the usage by pods is unknown", v.Cause.Signal)
				}
				met := slices.ContainsFunc(rules.Thresholds, func(th Threshold) bool {
					return th.Signal == v.Cause.Signal && th.Soft != v.Cause.Hard() && th.met(o, true)
				})
				if !met {
					t.Fatalf("evicted for %s, which is not met", v.Cause.Signal)
				}
			}
		}
	})
}

// TestOmittedPodsMakeNoDifference: while Calm returns true, leaving out pods without limits changes neither the
// decision nor the state.
func TestOmittedPodsMakeNoDifference(t *testing.T) {
	calm := 0
	rapid.Check(t, func(t *rapid.T) {
		rules := rulesOf(anyThresholds(t)...)
		rules.LocalStorageLimits = rapid.Bool().Draw(t, "limits")
		var all, few State
		for step := range 4 {
			now := start.Add(time.Duration(step) * 15 * time.Second)
			s := anySnapshot(t, now, anySpecs(t, 4))
			for i, sig := range snapshot.AllSignals() {
				if o := &s.Signals[sig]; o.Known() && (i+step)%8 > 0 {
					o.Available = rapid.Int64Range(1, 32).Draw(t, "plenty") * gi
				}
			}
			s.Pods = append(s.Pods, violatorPod("limited", mi, 2*mi))
			part := *s
			part.Pods = nil
			if Calm(&part, rules) {
				calm++
				part.Pods = s.Pods[len(s.Pods)-1:]
			} else {
				part.Pods = s.Pods
			}
			var d1, d2 Decision
			d1, all = Decide(s, rules, all)
			d2, few = Decide(&part, rules, few)
			if !reflect.DeepEqual(d1, d2) || !reflect.DeepEqual(all, few) {
				t.Fatalf("with all pods:\n%+v\nwithout:\n%+v", d1, d2)
			}
		}
	})
	if calm < 20 {
		t.Errorf("only %d snapshots were calm", calm)
	}
}

// TestKeptPodStatsMakeNoDifference: while NeedsPodStats returns false, the stats of pods without limits change neither
// the decision nor the state, if memory and processes are read from their cgroups.
func TestKeptPodStatsMakeNoDifference(t *testing.T) {
	kept := 0
	rapid.Check(t, func(t *rapid.T) {
		rules := rulesOf(anyThresholds(t)...)
		before := snapshot.Unobserved()
		var fresh, old State
		for step := range 4 {
			now := start.Add(time.Duration(step) * 15 * time.Second)
			s := anySnapshot(t, now, anySpecs(t, 4))
			for i, sig := range snapshot.AllSignals() {
				if o := &s.Signals[sig]; o.Known() && (i+step)%8 > 0 {
					o.Available = rapid.Int64Range(1, 32).Draw(t, "plenty") * gi
				}
			}
			part := *s
			part.Pods = slices.Clone(s.Pods)
			needed := NeedsPodStats(&part, rules, &before)
			if needed {
				before = s.Signals
			} else {
				kept++
			}
			for i := range s.Pods {
				pod := &s.Pods[i]
				memory := snapshot.Known(rapid.Map(rapid.Int64Range(0, 8), asBytes).Draw(t, "memory"), now)
				pod.Cgroup = &snapshot.Memory{
					WorkingSet: memory, Anonymous: memory, Processes: snapshot.Known(snapshot.PIDs(1), now),
				}
				part.Pods[i].Cgroup = pod.Cgroup
				if !needed {
					part.Pods[i].Usage = nil
				}
			}
			var d1, d2 Decision
			d1, fresh = Decide(s, rules, fresh)
			d2, old = Decide(&part, rules, old)
			if !reflect.DeepEqual(d1, d2) || !reflect.DeepEqual(fresh, old) {
				t.Fatalf("with new stats:\n%+v\nwith old ones:\n%+v", d1, d2)
			}
		}
	})
	if kept < 20 {
		t.Errorf("stats were kept only %d times", kept)
	}
}

func asBytes(gibibytes int64) snapshot.Bytes { return snapshot.Bytes(gibibytes * gi) }

func TestNeedsPodStats(t *testing.T) {
	rules := rulesOf(threshold(snapshot.NodeFsAvailable, "1Gi"), threshold(snapshot.MemoryAvailable, "1Gi"))
	known := func(available int64) snapshot.Observation {
		return snapshot.Observation{Available: available, Capacity: 100 * gi}
	}
	unknown := snapshot.Observation{Err: snapshot.ErrNotReported}
	for name, test := range map[string]struct {
		before, now snapshot.Observation
		// wantMemory is for a threshold on memory, wantDisk for one on a disk.
		wantMemory, wantDisk bool
	}{
		"as much is left":                  {known(11 * gi), known(11 * gi), false, false},
		"more than seven eighths are left": {known(17 * gi), known(15 * gi), false, false},
		"less than seven eighths are left": {known(17 * gi), known(15*gi - 1), false, true},
		"half is left":                     {known(11 * gi), known(6 * gi), false, true},
		"less than half is left":           {known(11 * gi), known(6*gi - 1), true, true},
		"it is met":                        {known(gi), known(gi - 1), true, true},
		"it is not met any more":           {known(gi - 1), known(gi), false, false},
		"it is not known any more":         {known(11 * gi), unknown, true, true},
		"it is still not known":            {unknown, unknown, false, false},
		"it is known, and not met":         {unknown, known(2 * gi), false, false},
		"it is known, and it is met":       {unknown, known(gi - 1), true, true},
		"more is available than before":    {known(2 * gi), known(90 * gi), false, false},
	} {
		for _, sig := range []snapshot.Signal{snapshot.NodeFsAvailable, snapshot.MemoryAvailable} {
			before, s := snapshot.Unobserved(), &snapshot.Snapshot{Signals: snapshot.Unobserved()}
			before[sig], s.Signals[sig] = test.before, test.now
			want := test.wantMemory
			if sig == snapshot.NodeFsAvailable {
				want = test.wantDisk
			}
			if got := NeedsPodStats(s, rules, &before); got != want {
				t.Errorf("%s: %s: %t", sig, name, got)
			}
		}
	}
	s := &snapshot.Snapshot{Signals: snapshot.Unobserved(), Requests: []snapshot.Request{requestFor("a")}}
	if !NeedsPodStats(s, rules, &s.Signals) {
		t.Error("an eviction is requested")
	}
	s.Requests, rules.ReportOutlook = nil, true
	if !NeedsPodStats(s, rules, &s.Signals) {
		t.Error("the outlook is reported")
	}
}
