package policy

import (
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestTwoFiguresOfRelease: an evicted pod holds 2 GiB, which covers the need. When that is anonymous memory it comes
// back for certain; page cache may not, and there is a closer look.
func TestTwoFiguresOfRelease(t *testing.T) {
	for name, test := range map[string]struct {
		certain int64
		again   time.Duration
	}{
		"anonymous memory": {2 * gi, defaultTiming().KillTime},
		"page cache":       {100 * mi, pollUrgent},
		"nobody knows":     {0, pollUrgent},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
				spec{name: "other", memory: gi}).available(snapshot.MemoryAvailable, 100*mi)
			w.flight = []snapshot.InFlight{{UID: "gone", Hard: true, State: snapshot.Stopped, Started: w.now, Changed: w.now,
				Deadline: w.now,
				Expected: snapshot.Release{Memory: snapshot.Bytes(2 * gi), CertainMemory: snapshot.Bytes(test.certain)}}}
			d := w.after(time.Second)
			w.outcome(d, AwaitRelease)
			if st := d.Starved[0]; st.InFlight != 2*gi || st.Certain != test.certain || d.LookAgain != test.again {
				t.Errorf("%+v, again in %v", st, d.LookAgain)
			}
		})
	}
}

// TestASoftNeedWaitsForAPodThatOthersStop: a deleted pod covers a soft need. Another pod would be given as much grace
// as the configuration allows, so that it is not evicted while the deleted one has no more than that left.
func TestASoftNeedWaitsForAPodThatOthersStop(t *testing.T) {
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

// TestAFailedHasteningLeavesAPodDying: a pod that covers the need was deleted, and hastening it has failed. Its grace
// period goes on, so that it counts when that ends in time; but it is not asked again at once.
func TestAFailedHasteningLeavesAPodDying(t *testing.T) {
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
		"nobody else stops it":            {false, 0, []string{"other"}},
		"nobody else stops it, soft":      {true, 0, []string{"other"}},
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
