package policy

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// leaking returns a node whose pod "hog" grows by rate per second, at the decision with which it crosses the hard
// threshold of 100 MiB.
func leaking(t *testing.T, rate int64, change func(*world)) Decision {
	t.Helper()
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")), smallPods(5)...)
	w.rules.Fence = true
	w.pods = append(w.pods, spec{name: "hog", memory: gi})
	change(w)
	w.available(snapshot.MemoryAvailable, 99*mi+4*rate).after(time.Second)
	w.grow(3, 0, map[string]int64{"hog": rate})
	return w.grow(1, 0, map[string]int64{"hog": rate})
}

func fenceOf(t *testing.T, d Decision, name string) *Fence {
	t.Helper()
	for i := range d.Victims {
		if d.Victims[i].Pod.Name == name {
			return d.Victims[i].Fence
		}
	}
	t.Fatalf("victims %v, want %s", names(d.Victims), name)
	return nil
}

// TestAVictimIsFencedIfAKillTakesTooLong: 99 MiB are left, which a kill of 3 s leaves for growth of up to 33 MiB/s.
func TestAVictimIsFencedIfAKillTakesTooLong(t *testing.T) {
	for rate, want := range map[int64]*Fence{
		1 * mi: nil, 32 * mi: nil,
		34 * mi:   {Slack: snapshot.Bytes(8 * mi), Growth: snapshot.Bytes(34 * mi)},
		1000 * mi: {Slack: snapshot.Bytes(8 * mi), Growth: snapshot.Bytes(1000 * mi)},
		2000 * mi: {Slack: snapshot.Bytes(10 * mi), Growth: snapshot.Bytes(2000 * mi)},
	} {
		got := fenceOf(t, leaking(t, rate, func(*world) {}), "hog")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("at %d MiB/s the fence is %+v, want %+v", rate/mi, got, want)
		}
	}
}

func TestVictimsWithoutAFence(t *testing.T) {
	for name, change := range map[string]func(*world){
		"fences are off": func(w *world) { w.rules.Fence = false },
		"soft threshold": func(w *world) { w.rules.Thresholds[0] = soft(w.rules.Thresholds[0], 0) },
	} {
		if f := fenceOf(t, leaking(t, 500*mi, change), "hog"); f != nil {
			t.Errorf("%s: the fence is %+v", name, f)
		}
	}
	d := leaking(t, 500*mi, func(w *world) { w.rules.Thresholds[0] = dry(w.rules.Thresholds[0]) })
	if len(d.DryRun.Victims) == 0 {
		t.Error("no victim in dry run")
	}
	for _, v := range d.DryRun.Victims {
		if v.Fence != nil {
			t.Errorf("dry run: the fence is %+v", v.Fence)
		}
	}
}

// TestAForkBombIsFenced: of 32,768 PIDs and three pods, a quarter is far above an equal share.
func TestAForkBombIsFenced(t *testing.T) {
	for name, test := range map[string]struct {
		pids   int64
		change func(*world)
		want   *Fence
	}{
		"fork bomb": {20000, func(*world) {}, &Fence{PIDs: true}},
		"no more":   {8000, func(*world) {}, nil},
		"off":       {20000, func(w *world) { w.rules.Fence = false }, nil},
		"soft":      {20000, func(w *world) { w.rules.Thresholds[0] = soft(w.rules.Thresholds[0], 0) }, nil},
	} {
		w := newWorld(t, rulesOf(threshold(snapshot.PIDAvailable, "1k")),
			spec{name: "bomb", pids: test.pids}, spec{name: "first", pids: 10}, spec{name: "second", pids: 10})
		w.rules.Fence = true
		test.change(w)
		w.signals[snapshot.PIDAvailable] = snapshot.Observation{Available: 999, Capacity: 32768}
		if got := fenceOf(t, w.after(time.Second), "bomb"); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: the fence is %+v, want %+v", name, got, test.want)
		}
	}
}

// fenceRound is a round at the end of which a hard need has these victims, each with a growth in bytes per second.
func fenceRound(available int64, rates ...float64) (*round, *need, []Victim, []candidate) {
	s := &snapshot.Snapshot{Taken: start, Signals: snapshot.Unobserved()}
	s.Signals[snapshot.MemoryAvailable] = snapshot.Observation{Available: available, Capacity: 32 * gi}
	rules := rulesOf()
	rules.Fence = true
	var victims []Victim
	var evicted []candidate
	for i, grown := range rates {
		pod := spec{name: fmt.Sprint(i), memory: gi}.pod(start)
		growth := unmeasured
		growth[0] = grown
		victims = append(victims, Victim{Pod: &pod})
		evicted = append(evicted, candidate{pod: &pod, usage: gi, known: true, growth: &growth})
	}
	return &round{snapshot: s, rules: rules}, &need{group: memoryGroup, hard: true}, victims, evicted
}

func TestFencesOfSeveralVictims(t *testing.T) {
	for name, test := range map[string]struct {
		available int64
		rates     []float64
		// want are the slacks, -1 for a victim without a fence.
		want []int64
	}{
		"together too fast":   {100 * mi, []float64{20e6, 20e6, 20e6}, []int64{8 * mi, 8 * mi, 8 * mi}},
		"one hardly grows":    {100 * mi, []float64{500e6, 1e6, 0}, []int64{8 * mi, -1, -1}},
		"half of what's left": {30 * mi, []float64{400e6, 400e6, 400e6}, []int64{5 * mi, 5 * mi, 5 * mi}},
		"little is left":      {2, []float64{400e6}, []int64{1}},
		"nearly nothing":      {1, []float64{400e6}, []int64{0}},
		"nothing":             {0, []float64{400e6}, []int64{0}},
		"less than nothing":   {-5, []float64{400e6}, []int64{-1}},
		"more than there is":  {33 * gi, []float64{400e9}, []int64{-1}},
		"no growth":           {100 * mi, []float64{0, math.NaN()}, []int64{-1, -1}},
	} {
		r, n, victims, evicted := fenceRound(test.available, test.rates...)
		r.setFences(n, victims, evicted)
		for i, want := range test.want {
			if got := victims[i].Fence; (got == nil) != (want < 0) || (got != nil && int64(got.Slack) != want) {
				t.Errorf("%s: victim %d has the fence %+v, want a slack of %d", name, i, got, want)
			}
		}
	}
}

func TestSenselessAmountsMeanNoFence(t *testing.T) {
	for name, change := range map[string]func(*round, *candidate){
		"available is unknown": func(r *round, _ *candidate) {
			r.snapshot.Signals[snapshot.MemoryAvailable].Err = errors.New("unknown")
		},
		"no capacity": func(r *round, _ *candidate) { r.snapshot.Signals[snapshot.MemoryAvailable].Capacity = 0 },
		"the limit of all pods is exceeded": func(r *round, _ *candidate) {
			r.snapshot.Signals[snapshot.AllocatableMemoryAvailable] = snapshot.Observation{Available: -1, Capacity: gi}
		},
		"usage is unknown": func(_ *round, c *candidate) { c.known = false },
		"no usage":         func(_ *round, c *candidate) { c.usage = 0 },
		"growth is unknown": func(_ *round, c *candidate) {
			c.growth = nil
		},
		"overhead": func(_ *round, c *candidate) {
			pod := spec{name: "vm", memory: gi}.object()
			pod.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("10Mi")}
			c.pod.Facts = snapshot.NewFacts(pod, true)
		},
	} {
		r, n, victims, evicted := fenceRound(100*mi, 400e6)
		change(r, &evicted[0])
		if r.setFences(n, victims, evicted); victims[0].Fence != nil {
			t.Errorf("%s: the fence is %+v", name, victims[0].Fence)
		}
	}
}

// TestFencesOnlyWhereTheyBelong plays what sources can report and what none should: fences change nothing else of a
// decision, each victim that has one is of a hard threshold that is enforced, and all slacks are at most half of what
// is left.
func TestFencesOnlyWhereTheyBelong(t *testing.T) {
	fenced := 0
	rapid.Check(t, func(t *rapid.T) {
		rules := anyRules(t)
		leak := rapid.Bool().Draw(t, "leak")
		if memory := threshold(snapshot.MemoryAvailable, "1Gi"); leak {
			rules.Thresholds = slices.DeleteFunc(rules.Thresholds, func(o Threshold) bool { return o.ID() == memory.ID() })
			rules.Thresholds = append(rules.Thresholds, memory)
		}
		rules.Fence = true
		off := *rules
		off.Fence = false
		var state, offState State
		now, leaking := start, anySpecs(t, 4)
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			elapsed := rapid.Int64Range(1, 5_000).Draw(t, "milliseconds")
			now = now.Add(time.Duration(elapsed) * time.Millisecond)
			s := anything(t, now)
			if leak {
				s.Pods, s.InFlight, s.Requests, s.LastRelease = nil, nil, nil, time.Time{}
				for i := range leaking {
					leaking[i].memory += rapid.Int64Range(-1, 200).Draw(t, "rate") * mi * elapsed / 1000
					s.Pods = append(s.Pods, leaking[i].pod(now))
					s.Pods[i].MemoryRate = maybe(t, "rate", func() snapshot.Rate {
						return snapshot.Rate{PerSecond: snapshot.Bytes(rapid.Int64Range(-1, 500).Draw(t, "now") * mi),
							Window: 20 * time.Millisecond}
					})
				}
				s.MemoryRate = maybe(t, "rate of the node", func() snapshot.Rate {
					return snapshot.Rate{PerSecond: snapshot.Bytes(gi), Window: 20 * time.Millisecond}
				})
				s.Signals[snapshot.MemoryAvailable] = snapshot.Observation{
					Available: rapid.Int64Range(0, 1100).Draw(t, "left") * mi, Capacity: 32 * gi}
			}
			var d, without Decision
			d, state = Decide(s, rules, state)
			without, offState = Decide(s, &off, offState)
			fenced += checkFences(t, s, rules, &d)
			for i := range d.Victims {
				d.Victims[i].Fence = nil
			}
			if !reflect.DeepEqual(d, without) || !reflect.DeepEqual(state, offState) {
				t.Fatalf("with fences:\n%+v\nwithout:\n%+v", d, without)
			}
		}
	})
	if fenced == 0 {
		t.Error("no victim had a fence")
	}
}

// checkFences checks the fences of a decision and returns their number.
func checkFences(t *rapid.T, s *snapshot.Snapshot, rules *Rules, d *Decision) (fenced int) {
	var slacks int64
	left := int64(math.MaxInt64)
	for _, sig := range []snapshot.Signal{snapshot.MemoryAvailable, snapshot.AllocatableMemoryAvailable} {
		if o := s.Signals[sig]; o.Known() {
			left = min(left, o.Available)
		}
	}
	for _, v := range d.DryRun.Victims {
		if v.Fence != nil {
			t.Fatalf("%s has a fence in dry run", v.Pod.Name)
		}
	}
	for _, v := range d.Victims {
		f := v.Fence
		if f == nil {
			continue
		}
		fenced++
		memory := v.Cause.Signal == snapshot.MemoryAvailable || v.Cause.Signal == snapshot.AllocatableMemoryAvailable
		switch {
		case v.Cause.Kind != HardThreshold || (!memory && v.Cause.Signal != snapshot.PIDAvailable):
			t.Fatalf("%s has a fence, and the cause %+v", v.Pod.Name, v.Cause)
		case v.Pod.Critical || v.Pod.Overhead || v.Killer != snapshot.PodWorker:
			t.Fatalf("%s has a fence: critical %t, overhead %t, killer %v", v.Pod.Name, v.Pod.Critical, v.Pod.Overhead, v.Killer)
		case memory && (f.Slack < 0 || f.Growth <= 0 || f.PIDs), !memory && *f != Fence{PIDs: true}:
			t.Fatalf("%s has the fence %+v", v.Pod.Name, *f)
		}
		enforced := false
		for i := range rules.Thresholds {
			th := &rules.Thresholds[i]
			enforced = enforced || (th.Signal == v.Cause.Signal && th.Hard() && !th.DryRun)
		}
		if !enforced {
			t.Fatalf("%s has a fence, and %s has no hard threshold", v.Pod.Name, v.Cause.Signal)
		}
		slacks += int64(f.Slack)
	}
	if slacks > 0 && slacks > left/2 {
		t.Fatalf("slacks of %d bytes, and %d are left", slacks, left)
	}
	return fenced
}

func TestLateFence(t *testing.T) {
	rules := rulesOf()
	rules.Fence = true
	for name, test := range map[string]struct {
		change func(*snapshot.Snapshot, *Rules)
		want   *Fence
	}{
		"grows": {func(*snapshot.Snapshot, *Rules) {}, &Fence{Slack: leastSlack, Growth: snapshot.Bytes(400 * mi)}},
		"little left": {func(s *snapshot.Snapshot, _ *Rules) { s.Signals[snapshot.MemoryAvailable].Available = 10 * mi },
			&Fence{Slack: snapshot.Bytes(5 * mi), Growth: snapshot.Bytes(400 * mi)}},
		"nothing left": {func(s *snapshot.Snapshot, _ *Rules) { s.Signals[snapshot.MemoryAvailable].Available = 0 },
			&Fence{Growth: snapshot.Bytes(400 * mi)}},
		"slow":       {func(s *snapshot.Snapshot, _ *Rules) { s.Pods[0].MemoryRate.PerSecond = 10 << 20 }, nil},
		"unmeasured": {func(s *snapshot.Snapshot, _ *Rules) { s.Pods[0].MemoryRate = nil }, nil},
		"gone":       {func(s *snapshot.Snapshot, _ *Rules) { s.Pods = nil }, nil},
		"unknown":    {func(s *snapshot.Snapshot, _ *Rules) { s.Signals = snapshot.Unobserved() }, nil},
		"off":        {func(_ *snapshot.Snapshot, r *Rules) { r.Fence = false }, nil},
	} {
		pod := spec{name: "hog", memory: gi}.pod(start)
		pod.MemoryRate = &snapshot.Rate{PerSecond: snapshot.Bytes(400 * mi), Window: 100 * time.Millisecond}
		s := &snapshot.Snapshot{Taken: start, Signals: snapshot.Unobserved(), Pods: []snapshot.Pod{pod}}
		s.Signals[snapshot.MemoryAvailable] = snapshot.Observation{Available: 100 * mi, Capacity: 32 * gi}
		changed := *rules
		test.change(s, &changed)
		got := LateFences(s, &changed, &Decision{}, func(types.UID) bool { return true })[pod.UID]
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: the fence is %+v, want %+v", name, got, test.want)
		}
	}
}

// Late fences and those of the decision together leave half of what is left.
func TestLateFencesShareWhatIsLeft(t *testing.T) {
	rules := rulesOf()
	rules.Fence = true
	for _, given := range []snapshot.Bytes{0, 4 << 20, 10 << 20} {
		s := &snapshot.Snapshot{Taken: start, Signals: snapshot.Unobserved()}
		s.Signals[snapshot.MemoryAvailable] = snapshot.Observation{Available: 20 * mi, Capacity: 32 * gi}
		for _, name := range []string{"a", "b", "c", "other"} {
			pod := spec{name: name, memory: gi}.pod(start)
			pod.MemoryRate = &snapshot.Rate{PerSecond: snapshot.Bytes(2000 * mi), Window: 20 * time.Millisecond}
			s.Pods = append(s.Pods, pod)
		}
		d := &Decision{Victims: []Victim{{Fence: &Fence{Slack: given}}, {}, {Fence: &Fence{PIDs: true}}}}
		late := LateFences(s, rules, d, func(uid types.UID) bool { return uid != s.Pods[3].UID })
		sum := given
		for _, f := range late {
			sum += f.Slack
		}
		if len(late) != 3 || sum > snapshot.Bytes(10*mi) || sum < snapshot.Bytes(10*mi)-3 {
			t.Errorf("%d late fences have %d bytes together with %d of the decision, 20 MiB are left", len(late), sum, given)
		}
	}
}
