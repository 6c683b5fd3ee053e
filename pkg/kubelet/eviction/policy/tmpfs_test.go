package policy

import (
	"fmt"
	"testing"

	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestMemoryLeftByEndedPodsIsNoGrowthOfTheSystem: a pod has ended, and its files in memory or its page cache still
// occupy memory. Pods within their requests grow, and do not await their turn as they would if the system grew.
func TestMemoryLeftByEndedPodsIsNoGrowthOfTheSystem(t *testing.T) {
	for name, test := range map[string]struct{ leaves, over bool }{
		"still listed":             {},
		"not listed, volume there": {leaves: true},
		"page cache of a pod that is cleaned up, or that others have stopped": {leaves: true, over: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")), smallPods(10)...)
			w.pods = append(w.pods, spec{name: "victim", memory: gi, cache: gi - mi})
			growing := map[string]int64{}
			for i := range 10 {
				growing[fmt.Sprintf("small-%02d", i)] = 15 * mi
				w.pods[i].request = gi
			}
			w.available(snapshot.MemoryAvailable, 100*mi+7*150*mi).after(time.Second)
			w.grow(4, 0, growing)
			release := snapshot.Release{Memory: snapshot.Bytes(gi), CertainMemory: snapshot.Bytes(gi)}
			w.stopping("victim", snapshot.Stopping, release)
			w.state.Enforced.Needs[memoryGroup].LastEviction = w.now
			w.flight[0].State = snapshot.Stopped
			if test.leaves {
				w.pods = w.pods[:10]
			}
			if test.over {
				w.flight = nil
			}
			w.grow(2, 0, growing)
			d := w.grow(1, 0, growing)
			t.Logf("left %d Mi, %+v, victims %v", w.signals[snapshot.MemoryAvailable].Available/mi, d.Needs, names(d.Victims))
			if len(d.Victims) == 0 || len(d.Victims) < d.Needs[0].Chosen {
				t.Errorf("%d of %d go", len(d.Victims), d.Needs[0].Chosen)
			}
		})
	}
}
