package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestCertainAndPossibleRelease: an evicted pod holds 2 GiB, which covers the need. Anonymous memory comes free for
// certain; page cache may not, so that the next round is due sooner.
func TestCertainAndPossibleRelease(t *testing.T) {
	for name, test := range map[string]struct {
		certain int64
		again   time.Duration
	}{
		"anonymous memory": {2 * gi, defaultTiming().KillTime},
		"page cache":       {100 * mi, pollUrgent},
		"unknown":          {0, pollUrgent},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
				spec{name: "other", memory: gi}).available(snapshot.MemoryAvailable, 100*mi)
			w.flight = []snapshot.InFlight{{UID: "gone", Hard: true, State: snapshot.Stopped, Started: w.now, Changed: w.now,
				Deadline: w.now,
				Expected: snapshot.Release{Memory: snapshot.Bytes(2 * gi), CertainMemory: snapshot.Bytes(test.certain)}}}
			d := w.after(time.Second)
			w.outcome(d, AwaitRelease)
			if st := d.Needs[0]; st.InFlight != 2*gi || st.Certain != test.certain || d.SyncAfter != test.again {
				t.Errorf("%+v, again in %v", st, d.SyncAfter)
			}
		})
	}
}

// TestASoftNeedWaitsForADeletedPod: a deleted pod covers a soft need. No other pod is evicted while the remaining grace
// period of the deleted one is no longer than that of a victim.
func TestASoftNeedWaitsForADeletedPod(t *testing.T) {
	for name, test := range map[string]struct {
		limit   int64
		left    time.Duration
		victims []string
	}{
		"as long as a victim may take":            {60, time.Minute, nil},
		"longer":                                  {60, 61 * time.Second, []string{"other"}},
		"late, within patience":                   {60, -29 * time.Second, nil},
		"late, beyond patience":                   {60, -30 * time.Second, []string{"other"}},
		"within patience though victims get none": {0, 30 * time.Second, nil},
		"longer though victims get none":          {0, 31 * time.Second, []string{"other"}},
		"victims get their own grace":             {-1, time.Hour, nil},
		"more than a duration holds":              {1 << 62, time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(soft(threshold(snapshot.MemoryAvailable, "1Gi"), 0)),
				spec{name: "other", memory: 2 * gi}, spec{name: "deleted", memory: 600 * mi, terminatingIn: test.left})
			w.rules.MaxPodGracePeriodSeconds = test.limit
			w.evicts(w.available(snapshot.MemoryAvailable, 500*mi).after(time.Second), test.victims...)
		})
	}
}

// TestAnOverdueDeletionIsNoCandidate: the largest pod was deleted and has outlived its grace period and patience. Its
// eviction would kill the same containers once more, so that the next pod goes. While the runtime is silent, the pod
// counts for longer.
func TestAnOverdueDeletionIsNoCandidate(t *testing.T) {
	for name, test := range map[string]struct {
		soft, silent bool
		late         time.Duration
		victims      []string
	}{
		"within patience":                 {late: 29 * time.Second},
		"overdue":                         {late: 30 * time.Second, victims: []string{"other"}},
		"overdue, soft":                   {soft: true, late: 30 * time.Second, victims: []string{"other"}},
		"silent runtime":                  {silent: true, late: SilentPatience - 1},
		"silent runtime, soft":            {soft: true, silent: true, late: SilentPatience - 1},
		"silent runtime, overdue":         {silent: true, late: SilentPatience, victims: []string{"other"}},
		"silent runtime, within patience": {silent: true, late: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			limit := threshold(snapshot.MemoryAvailable, "1Gi")
			if test.soft {
				limit = soft(limit, 0)
			}
			w := newWorld(t, rulesOf(limit), spec{name: "other", memory: 2 * gi},
				spec{name: "deleted", memory: 3 * gi, terminatingIn: -test.late})
			w.silent = test.silent
			w.evicts(w.available(snapshot.MemoryAvailable, 500*mi).after(time.Second), test.victims...)
		})
	}
}

// TestFailedHasteningKeepsTheDeadline: a pod that covers the need was deleted, and hastening it has failed. It counts
// if its own grace period ends in time, and is not hastened again at once.
func TestFailedHasteningKeepsTheDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		soft    bool
		left    time.Duration
		victims []string
	}{
		"soft threshold":                  {true, time.Minute, nil},
		"hard threshold":                  {false, time.Second, nil},
		"hard threshold that cannot wait": {false, time.Minute, []string{"other"}},
		"hard threshold, late":            {false, -29 * time.Second, nil},
		"hard threshold, beyond patience": {false, -30 * time.Second, []string{"other"}},
		"not deleted":                     {false, 0, []string{"other"}},
		"not deleted, soft":               {true, 0, []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			limit := threshold(snapshot.MemoryAvailable, "1Gi")
			if test.soft {
				limit = soft(limit, 0)
			}
			w := newWorld(t, rulesOf(limit),
				spec{name: "other", memory: 2 * gi}, spec{name: "deleted", priority: 1, memory: 600 * mi, terminatingIn: test.left})
			w.available(snapshot.MemoryAvailable, 500*mi)
			w.stopping("deleted", snapshot.Failed, snapshot.Release{})
			w.evicts(w.after(w.rules.Timing.KillTime), test.victims...)
		})
	}
}

// TestFilesOfExitedContainersAreOnTheirWay: a victim held 8 GiB of the disk when it was asked to stop. Stats leave out
// its container that has exited; the files of that are there until the pod is cleaned up.
func TestFilesOfExitedContainersAreOnTheirWay(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi")), spec{name: "other", disk: 3 * gi},
		spec{name: "writer", disk: mi})
	w.stopping("writer", snapshot.Stopping, snapshot.Release{
		Devices: [snapshot.NumDevices]snapshot.FsRelease{{Bytes: snapshot.Bytes(8 * gi)}},
	})
	w.outcome(w.available(snapshot.NodeFsAvailable, 5*gi).after(time.Second), AwaitRelease)
}

// TestAVictimThatCannotBeHastenedIsWaitedFor: a victim of a hard threshold gets a second, also where a kill takes less
// than that. Asking again gives it no less.
func TestAVictimThatCannotBeHastenedIsWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		deleted time.Duration
		flight  bool
	}{"victim": {flight: true}, "deleted": {deleted: 900 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")), spec{name: "other", priority: 1, memory: gi},
				spec{name: "dying", memory: 2 * gi, terminatingIn: test.deleted})
			w.rules.Timing.KillTime = 100 * time.Millisecond
			if test.flight {
				w.stopping("dying", snapshot.Stopping, snapshot.Release{})
			}
			w.outcome(w.available(snapshot.MemoryAvailable, 100*mi).after(0), AwaitRelease)
		})
	}
}

// TestReleaseAfterAnObservation: an observation from before the last release does not show it. No signal evicts a pod
// because of one.
func TestReleaseAfterAnObservation(t *testing.T) {
	for _, sig := range snapshot.AllSignals() {
		for name, test := range map[string]struct {
			age     time.Duration
			outcome Outcome
		}{
			"before": {1001 * time.Millisecond, AwaitStats},
			"at":     {time.Second, Evict},
			"after":  {999 * time.Millisecond, Evict},
		} {
			t.Run(fmt.Sprint(sig, " ", name), func(t *testing.T) {
				w := newWorld(t, rulesOf(threshold(sig, "1Gi")),
					spec{name: "other", memory: 2 * gi, disk: 2 * gi, inodes: 2 * gi, pids: 2 * gi})
				w.release = w.now.Add(-time.Second)
				w.reclaimsHang()
				w.dated(sig, 100*mi, test.age)
				w.outcome(w.after(0), test.outcome)
			})
		}
	}
}

// TestOldSignalBesideANewOne: the image file system and the root file system are one. The stats of the former are from
// before the last release, those of the latter are not. Only what the newer ones show is missing.
func TestOldSignalBesideANewOne(t *testing.T) {
	for name, test := range map[string]struct {
		imagesAge time.Duration
		victims   []string
		amount    int64
	}{
		"older than the release": {6 * time.Second, []string{"small"}, gi},
		"newer":                  {time.Second, []string{"large"}, 8 * gi},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi"), threshold(snapshot.ImageFsAvailable, "15Gi")),
				spec{name: "small", disk: 2 * gi}, spec{name: "large", priority: 1, disk: 20 * gi})
			w.release = w.now.Add(-3 * time.Second)
			w.reclaimsHang()
			w.dated(snapshot.NodeFsAvailable, 9*gi, time.Second)
			w.dated(snapshot.ImageFsAvailable, 7*gi, test.imagesAge)
			d := w.after(0)
			if len(d.Needs) != 1 || d.Needs[0].Amount != test.amount {
				t.Errorf("needs %+v, want %d bytes", d.Needs, test.amount)
			}
			w.evicts(d, test.victims...)
		})
	}
}

// dated sets an observation with the age that it has by the wall clock.
func (w *world) dated(sig snapshot.Signal, available int64, age time.Duration) {
	w.signals[sig] = snapshot.Observation{Available: available, Capacity: 32 * gi, At: wallTime(w.now).Add(-age)}
}

// reclaimsHang lets node-level reclaims hang for so long that pods are evicted.
func (w *world) reclaimsHang() {
	for device := range snapshot.NumDevices {
		for _, inodes := range []bool{false, true} {
			w.reclaim = append(w.reclaim, snapshot.Reclaim{Device: device, Inodes: inodes, Running: true,
				Started: w.now.Add(-time.Hour)})
		}
	}
}

// TestAllThatAreNeededAreHastenedTogether: deleted pods have long grace periods left. Their ends are only brought
// forward, so that none of those that cover the need waits for the effect of another, and the pod that runs stays.
func TestAllThatAreNeededAreHastenedTogether(t *testing.T) {
	deleted := func(name string) spec { return spec{name: name, memory: 300 * mi, terminatingIn: time.Hour} }
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
		spec{name: "running", memory: 9 * gi}, deleted("a"), deleted("b"), deleted("c"), deleted("d"), deleted("e"))
	w.available(snapshot.MemoryAvailable, 100*mi)
	w.evicts(w.after(time.Second), "a", "b", "c", "d")
}
