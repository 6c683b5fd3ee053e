package policy

import (
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestTwoFiguresOfRelease: an evicted pod holds 2 GiB, which covers the need. When that is anonymous memory it comes back for
// certain; page cache may not, and there is a closer look.
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
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")), spec{name: "other", memory: gi}).available(snapshot.MemoryAvailable, 100*mi)
			w.flight = []snapshot.InFlight{{UID: "gone", Hard: true, State: snapshot.Stopped, Started: w.now, Changed: w.now, Deadline: w.now,
				Expected: snapshot.Release{Memory: snapshot.Bytes(2 * gi), CertainMemory: snapshot.Bytes(test.certain)}}}
			d := w.after(time.Second)
			w.outcome(d, AwaitRelease)
			if st := d.Starved[0]; st.InFlight != 2*gi || st.Certain != test.certain || d.LookAgain != test.again {
				t.Errorf("%+v, again in %v", st, d.LookAgain)
			}
		})
	}
}
