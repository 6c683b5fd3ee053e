package policy

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Anything that a source can report, and what no source should.
var (
	anyAmount = rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, -1, math.MaxInt64, 1 << 60, math.MinInt64, 1 << 62, -(1 << 62)}),
		rapid.Int64Range(0, 40*gi),
	)
	anyPercent = rapid.SampledFrom([]float32{0, 0.05, 0.5, 1, 7})
	anyElapsed = rapid.OneOf(rapid.Int64Range(-1e12, 1e15), rapid.Int64Range(0, 60e9))
)

func maybe[T any](t *rapid.T, what string, make func() T) *T {
	if rapid.IntRange(0, 3).Draw(t, what+" is absent") == 0 {
		return nil
	}
	v := make()
	return &v
}

func anyBytes(t *rapid.T, what string) snapshot.Bytes { return snapshot.Bytes(anyAmount.Draw(t, what)) }

func anyFs(t *rapid.T, what string) snapshot.FsUsage {
	return snapshot.FsUsage{Bytes: anyBytes(t, what), Inodes: snapshot.Inodes(anyAmount.Draw(t, what))}
}

func anyPod(t *rapid.T, i int, now time.Time) snapshot.Pod {
	p := anySpec(i).Draw(t, "pod").pod(now)
	if rapid.Bool().Draw(t, "limited") {
		p = violatorPod(fmt.Sprintf("pod-%02d", i), mi, -1)
	}
	p.Images = anyBytes(t, "images")
	p.MemoryRate = anyRate(t)
	p.Usage = maybe(t, "stats", func() snapshot.Usage {
		return snapshot.Usage{
			Memory: anyBytes(t, "working set"), AnonymousMemory: anyBytes(t, "RSS"),
			PIDs: snapshot.PIDs(anyAmount.Draw(t, "processes")), LocalStorage: anyBytes(t, "storage"),
			Volumes: []snapshot.VolumeUsage{{Name: "scratch", FsUsage: anyFs(t, "volume")}},
			Containers: []snapshot.ContainerUsage{{
				Name: "c", Memory: anyBytes(t, "container"), WritableLayer: anyFs(t, "rootfs"), Logs: anyFs(t, "logs"),
			}},
		}
	})
	if rapid.IntRange(0, 4).Draw(t, "terminating") == 0 {
		p.Terminating = &snapshot.Termination{Deadline: now.Add(time.Duration(anyElapsed.Draw(t, "left")))}
	}
	return p
}

func anyRate(t *rapid.T) *snapshot.Rate {
	return maybe(t, "rate", func() snapshot.Rate {
		return snapshot.Rate{PerSecond: anyBytes(t, "per second"),
			Window: time.Duration(rapid.Int64Range(-1, 1e9).Draw(t, "window"))}
	})
}

func anyInFlight(t *rapid.T, uid types.UID, now time.Time) snapshot.InFlight {
	ago := func(what string) time.Time { return now.Add(-time.Duration(anyElapsed.Draw(t, what))) }
	return snapshot.InFlight{
		UID: uid, Hard: rapid.Bool().Draw(t, "hard"), State: snapshot.InFlightState(rapid.IntRange(0, 2).Draw(t, "state")),
		Started: ago("started"), Changed: ago("changed"), Deadline: ago("deadline"),
		Expected: snapshot.Release{Memory: snapshot.Bytes(anyAmount.Draw(t, "memory")),
			CertainMemory: snapshot.Bytes(anyAmount.Draw(t, "certain"))},
	}
}

func anything(t *rapid.T, now time.Time) *snapshot.Snapshot {
	s := &snapshot.Snapshot{
		Taken: now, WallTime: wallTime(now),
		Layout: layoutOf(rapid.Bool().Draw(t, "dedicated"), rapid.Bool().Draw(t, "split")),
	}
	s.MemoryRate, s.LongMemoryRate = anyRate(t), anyRate(t)
	s.RuntimeSilent = rapid.IntRange(0, 3).Draw(t, "silent") == 0
	s.Layout.Known = rapid.IntRange(0, 4).Draw(t, "layout") > 0
	for _, sig := range snapshot.AllSignals() {
		s.Signals[sig] = snapshot.Observation{Available: anyAmount.Draw(t, "available"),
			Capacity: anyAmount.Draw(t, "capacity")}
		if rapid.IntRange(0, 3).Draw(t, "unknown") == 0 {
			s.Signals[sig].Err = errors.New("unknown")
		}
		if rapid.Bool().Draw(t, "dated") {
			s.Signals[sig].At = wallTime(now).Add(-time.Duration(anyElapsed.Draw(t, "age")))
		}
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		s.Pods = append(s.Pods, anyPod(t, i, now))
		if rapid.IntRange(0, 5).Draw(t, "inFlight") == 0 {
			s.InFlight = append(s.InFlight, anyInFlight(t, s.Pods[i].UID, now))
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
		s.InFlight = append(s.InFlight, anyInFlight(t, "gone", now))
	}
	for d := range snapshot.NumDevices {
		if rapid.Bool().Draw(t, "reclaimed") {
			s.Reclaims = append(s.Reclaims, snapshot.Reclaim{Device: d, Running: rapid.Bool().Draw(t, "running"),
				Started:  now.Add(-time.Duration(anyElapsed.Draw(t, "ago"))),
				Finished: now.Add(-time.Duration(anyElapsed.Draw(t, "ago")))})
		}
	}
	return s
}

func anyRules(t *rapid.T) *Rules {
	thresholds := anyThresholds(t)
	for i := range thresholds {
		if rapid.IntRange(0, 3).Draw(t, "percent") == 0 {
			thresholds[i].Value = evictionapi.ThresholdValue{Percentage: anyPercent.Draw(t, "share")}
		}
		if rapid.IntRange(0, 3).Draw(t, "minimum") == 0 {
			thresholds[i].MinReclaim = &evictionapi.ThresholdValue{Percentage: anyPercent.Draw(t, "reclaim")}
		}
		thresholds[i].DryRun = rapid.IntRange(0, 3).Draw(t, "dry run") == 0
	}
	rules := rulesOf(thresholds...)
	rules.LocalStorageLimits = true
	rules.LocalStorageDryRun = rapid.Bool().Draw(t, "limits in dry run")
	rules.MaxPodGracePeriodSeconds = rapid.Int64Range(-1, 1000).Draw(t, "grace")
	return rules
}

// decideOnAnything: absent and absurd values, in any order. Decide does not panic, its result is bounded, and it
// depends neither on the order of the input nor on whether the state was encoded and decoded.
func decideOnAnything(t *rapid.T) {
	rules, now := anyRules(t), start
	var m1, m2 State
	for range rapid.IntRange(1, 5).Draw(t, "rounds") {
		now = now.Add(time.Duration(anyElapsed.Draw(t, "elapsed")))
		a := anything(t, now)
		b := *a
		seed := rapid.Int64().Draw(t, "seed")
		b.Pods, b.InFlight, b.Reclaims = shuffled(a.Pods, seed), shuffled(a.InFlight, seed), shuffled(a.Reclaims, seed)
		var d1, d2 Decision
		d1, m1 = Decide(a, rules, m1)
		d2, m2 = Decide(&b, rules, recoded(t, m2))
		checkBounds(t, a, &d1)
		if got, want := explained(d2.Victims), explained(d1.Victims); !slices.Equal(got, want) {
			t.Fatalf("victims %q, and %q for the same in another order", want, got)
		}
		d1.Victims, d2.Victims = nil, nil
		if !reflect.DeepEqual(m1, m2) {
			t.Fatalf("states differ:\n%+v\n%+v", m1, m2)
		}
		if !reflect.DeepEqual(d1, d2) {
			t.Fatalf("decisions differ:\n%+v\n%+v", d1, d2)
		}
	}
}

func explained(victims []Victim) (list []string) {
	for i := range victims {
		v := &victims[i]
		list = append(list, fmt.Sprint(v.Pod.UID, v.Cause, v.GraceSeconds, v.Hasten, v.Message, v.Annotations))
	}
	return list
}

func checkBounds(t *rapid.T, s *snapshot.Snapshot, d *Decision) {
	if len(d.Needs) > int(numGroups) || len(d.Reclaims) > int(snapshot.NumDevices) || d.SyncAfter < 0 ||
		d.SyncAfter > time.Hour {
		t.Fatalf("out of bounds: %+v", d)
	}
	for i := range d.Needs {
		if st := &d.Needs[i]; st.Amount < 1 || st.InFlight < 0 || st.Certain < 0 || st.Certain > st.InFlight ||
			st.Chosen > len(s.Pods) {
			t.Fatalf("out of bounds: %+v", st)
		}
	}
	seen := map[types.UID]bool{}
	for i := range d.Victims {
		v := &d.Victims[i]
		if v.Pod.Critical || seen[v.Pod.UID] || v.GraceSeconds < 0 || v.GraceSeconds > 1000 || len(v.Message) > 10_000 {
			t.Fatalf("a victim out of bounds: %+v", v)
		}
		seen[v.Pod.UID] = true
	}
}

func TestDecideOnAnything(t *testing.T) { rapid.Check(t, decideOnAnything) }

// FuzzDecide starts with input that is long enough for sequences of rounds; shorter input makes no case.
func FuzzDecide(f *testing.F) {
	for seed := range int64(8) {
		data := make([]byte, 64<<10)
		rand.New(rand.NewSource(seed)).Read(data)
		f.Add(data)
	}
	f.Fuzz(rapid.MakeFuzz(decideOnAnything))
}
