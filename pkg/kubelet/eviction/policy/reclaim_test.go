package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// done returns a reclaim that took the last second.
func (w *world) done(inodes bool, got snapshot.Reclaimed) snapshot.Reclaim {
	return snapshot.Reclaim{Device: snapshot.NodeDevice, Inodes: inodes, Started: w.now.Add(-time.Second), Finished: w.now,
		Got: got}
}

func TestReclaimIncludesTheMinimumReclaim(t *testing.T) {
	w := newWorld(t, rulesOf(reclaiming(threshold(snapshot.NodeFsAvailable, "10Gi"), "2Gi"),
		threshold(snapshot.ImageFsAvailable, "11Gi")))
	d := w.available(snapshot.NodeFsAvailable, 9*gi).available(snapshot.ImageFsAvailable, 9*gi).after(time.Second)
	want := ReclaimRequest{Device: snapshot.NodeDevice, Signal: snapshot.NodeFsAvailable, Containers: true, Images: true,
		Amount: 3 * gi, Target: 12 * gi}
	if len(d.Reclaims) != 1 || d.Reclaims[0] != want {
		t.Errorf("reclaims %+v, want %+v", d.Reclaims, want)
	}
}

// TestReclaimIsRepeatedWhileThereIsMore: a reclaim frees what the need requires; what it left is removed before a pod
// is evicted.
func TestReclaimIsRepeatedWhileThereIsMore(t *testing.T) {
	for _, more := range []bool{true, false} {
		w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi")), spec{name: "writer", disk: gi})
		w.outcome(w.available(snapshot.NodeFsAvailable, 9*gi).after(time.Second), ReclaimNode)
		w.now = w.now.Add(time.Second)
		w.reclaim = []snapshot.Reclaim{w.done(false, snapshot.Reclaimed{Images: 1, Freed: gi, More: more})}
		d := w.after(time.Second)
		if more {
			w.outcome(d, ReclaimNode)
			w.evicts(d)
		} else {
			w.evicts(d, "writer")
		}
	}
}

// TestReclaimThatWasNotEnoughNeedsNoNewObservation: stats of a file system may be old. What the reclaim has measured is
// newer, so that the decision does not wait for other stats.
func TestReclaimThatWasNotEnoughNeedsNoNewObservation(t *testing.T) {
	for name, test := range map[string]struct {
		missing int64
		release time.Duration
		want    Outcome
	}{
		"it was not enough":              {3 * gi, 0, Evict},
		"not measured":                   {0, 0, AwaitStats},
		"a pod was released since":       {3 * gi, 1500 * time.Millisecond, AwaitStats},
		"a pod was released long before": {3 * gi, -time.Minute, Evict},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi")), spec{name: "small", disk: gi},
				spec{name: "writer", disk: 9 * gi})
			old := snapshot.Observation{Available: 9 * gi, Capacity: 32 * gi, At: wallTime(w.now)}
			w.signals[snapshot.NodeFsAvailable] = old
			w.outcome(w.after(time.Second), ReclaimNode)
			w.now = w.now.Add(time.Second)
			w.reclaim = []snapshot.Reclaim{w.done(false, snapshot.Reclaimed{Images: 1, Missing: test.missing})}
			w.release = w.reclaim[0].Finished.Add(test.release)
			if test.release == 0 {
				w.release = time.Time{}
			}
			d := w.after(time.Second)
			w.outcome(d, test.want)
			if test.want != Evict {
				return
			}
			w.evicts(d, "writer")
			if v := d.Victims[0]; !strings.Contains(v.Message, "Threshold quantity: 10Gi, available: 7Gi.") ||
				d.Needs[0].Amount != 3*gi {
				t.Errorf("message %q, needs %+v", v.Message, d.Needs)
			}
			w.outcome(w.after(time.Second), AwaitStats)
		})
	}
}

// TestBytesAndInodesAreReclaimedSeparately: a reclaim that freed enough bytes may not have freed enough inodes.
func TestBytesAndInodesAreReclaimedSeparately(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.NodeFsInodesFree, "1k")), spec{name: "pod", inodes: 10})
	w.available(snapshot.NodeFsInodesFree, 2000).after(time.Second)
	w.now = w.now.Add(time.Minute)
	w.available(snapshot.NodeFsInodesFree, 100)
	w.reclaim = []snapshot.Reclaim{w.done(false, snapshot.Reclaimed{})}
	d := w.after(0)
	w.outcome(d, ReclaimNode)
	if len(d.Reclaims) != 1 || !d.Reclaims[0].Inodes() {
		t.Errorf("reclaims %+v", d.Reclaims)
	}
	w.reclaim = append(w.reclaim, w.done(true, snapshot.Reclaimed{}))
	w.evicts(w.after(time.Second), "pod")
}

// D14: stock does not measure pods on the image device of a split file system and evicts in the order of its input.
// Ours ranks them by the size of the images that no other pod uses.
func TestD14SplitFileSystemRanksByImages(t *testing.T) {
	images := map[string]int64{"a-shares": 0, "b-small": gi, "c-big": 5 * gi}
	for name, test := range map[string]struct {
		signal snapshot.Signal
		known  bool
		want   string
	}{
		"bytes":                        {snapshot.ImageFsAvailable, true, "c-big"},
		"usage of images unknown":      {snapshot.ImageFsAvailable, false, "a-shares"},
		"inodes of images are unknown": {snapshot.ImageFsInodesFree, true, "a-shares"},
		"node device":                  {snapshot.NodeFsAvailable, true, "writer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(test.signal, "1Gi")),
				spec{name: "writer", disk: 20 * gi, storage: 30 * gi, logs: 15 * gi}, spec{name: "a-shares", disk: gi},
				spec{name: "b-small", disk: gi}, spec{name: "c-big", disk: gi})
			w.layout = layoutOf(true, true)
			w.available(test.signal, mi)
			w.reclaim = []snapshot.Reclaim{
				{Device: snapshot.ImageDevice, Started: w.now, Finished: w.now.Add(time.Second)},
				{Device: snapshot.ImageDevice, Inodes: true, Started: w.now, Finished: w.now.Add(time.Second)},
				{Device: snapshot.NodeDevice, Started: w.now, Finished: w.now.Add(time.Second)},
			}
			w.now = w.now.Add(time.Second)
			s := w.snapshot()
			for i := range s.Pods {
				if bytes, ok := images[s.Pods[i].Name]; ok && test.known {
					s.Pods[i].Images = snapshot.Bytes(bytes)
				}
			}
			d, _ := Decide(s, w.rules, State{})
			w.evicts(d, test.want)
			if v := d.Victims; test.known && test.signal == snapshot.ImageFsAvailable && len(v) == 1 {
				if got := v[0].Expected.Devices[snapshot.ImageDevice].Bytes; fmt.Sprint(got) != fmt.Sprint(5*gi) {
					t.Errorf("expected release %d", got)
				}
			}
		})
	}
}

// TestAnyReclaims: with any list of reclaims in any order, requests have an amount, and no pod is evicted while a
// reclaim for the same need begins.
func TestAnyReclaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t, start, anySpecs(t, 6))
		at := func(name string) time.Time {
			return start.Add(time.Duration(rapid.IntRange(-90, 5).Draw(t, name)) * time.Second)
		}
		for _, device := range []snapshot.Device{snapshot.NodeDevice, snapshot.ImageDevice} {
			for _, inodes := range []bool{true, false} {
				s.Reclaims = append(s.Reclaims, snapshot.Reclaim{
					Device: device, Inodes: inodes, Running: rapid.Bool().Draw(t, "running"), Started: at("started"),
					Finished: at("finished"),
					Got: snapshot.Reclaimed{More: rapid.Bool().Draw(t, "more"),
						Missing: rapid.Int64Range(-gi, 10*gi).Draw(t, "missing")},
				})
			}
		}
		rules := rulesOf(anyThresholds(t)...)
		_, m := Decide(s, rules, State{})
		later := *s
		later.Taken = start.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "later")) * time.Second)
		d, _ := Decide(&later, rules, m)
		later.Reclaims = slices.Clone(later.Reclaims)
		slices.Reverse(later.Reclaims)
		again, _ := Decide(&later, rules, m)
		if !reflect.DeepEqual(names(d.Victims), names(again.Victims)) || !reflect.DeepEqual(d.Needs, again.Needs) ||
			!reflect.DeepEqual(d.Reclaims, again.Reclaims) {
			t.Fatalf("decisions differ: %+v, %+v", d, again)
		}
		for _, q := range d.Reclaims {
			if q.Amount <= 0 || !q.Images && !q.Containers {
				t.Fatalf("asks for %+v", q)
			}
			for _, v := range d.Victims {
				if v.Cause.Signal == q.Signal {
					t.Fatalf("%s is reclaimed and %s is evicted for it", q.Signal, v.Pod.Name)
				}
			}
		}
	})
}

// TestAReclaimThatHangsIsWaitedForNoLongerThanPatience: however long the monitoring period is.
func TestAReclaimThatHangsIsWaitedForNoLongerThanPatience(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi")), spec{name: "writer", disk: 9 * gi})
	w.rules.Timing.Period = 5 * time.Minute
	d := w.available(snapshot.NodeFsAvailable, 9*gi).after(time.Second)
	w.outcome(d, ReclaimNode)
	w.reclaim = []snapshot.Reclaim{{Device: snapshot.NodeDevice, Running: true, Started: w.now}}
	expectSync := func(want time.Duration) {
		t.Helper()
		if d.SyncAfter != want {
			t.Errorf("again in %v, want %v", d.SyncAfter, want)
		}
	}
	expectSync(w.rules.Timing.Patience)
	d = w.after(10 * time.Second)
	w.outcome(d, AwaitReclaim)
	expectSync(w.rules.Timing.Patience - 10*time.Second)
	w.evicts(w.after(d.SyncAfter), "writer")
}
