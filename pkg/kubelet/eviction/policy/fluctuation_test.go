package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// carryOut puts the victims of a decision in flight, so that they have ended after a second, and returns their number.
func (w *world) carryOut(d Decision) int {
	for _, f := range w.flight {
		w.release = w.now
		w.pods = slices.DeleteFunc(w.pods, func(p spec) bool { return p.name == string(f.UID) })
	}
	w.flight = nil
	for _, v := range d.Victims {
		w.stopping(v.Pod.Name, snapshot.Stopping, v.Expected)
	}
	return len(d.Victims)
}

// TestFluctuationIsNoGrowthOfCandidates: a host process uses nearly all memory, and takes what evictions release. The
// working sets of the pods fluctuate a little, and none grows.
func TestFluctuationIsNoGrowthOfCandidates(t *testing.T) {
	for _, test := range []struct {
		left, wave int64
		// most is one in a monitoring period; where each pod moves by a fifth of its size each second, part of that is
		// growth.
		most int
	}{{4 * mi, 2 * mi, 6}, {60 * mi, 2 * mi, 6}, {0, 4096, 6}, {20 * mi, 8 * mi, 15}} {
		t.Run(fmt.Sprintf("%d left, waves of %d", test.left, test.wave), func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")), smallPods(60)...)
			w.available(snapshot.MemoryAvailable, 500*mi).after(time.Second)
			evicted := 0
			random := rand.New(rand.NewPCG(1, 2))
			for range 60 {
				for i := range w.pods {
					w.pods[i].memory = 40*mi + random.Int64N(test.wave)
				}
				free := max(test.left, w.signals[snapshot.MemoryAvailable].Available-100*mi)
				d := w.available(snapshot.MemoryAvailable, free).after(time.Second)
				if n := w.carryOut(d); n > 0 {
					evicted += n
					t.Logf("%v: %v", w.now.Sub(start), names(d.Victims))
				}
			}
			if evicted > test.most {
				t.Errorf("%d pods within their requests were evicted in a minute, want %d at most", evicted, test.most)
			}
		})
	}
}

// TestFluctuationAfterARestart: the agent was started while little memory is missing, and has one short window to
// measure growth in. The working sets of the pods fluctuate, and nothing grows.
func TestFluctuationAfterARestart(t *testing.T) {
	for _, request := range []int64{0, 100 * mi} {
		w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")), smallPods(60)...)
		for i := range w.pods {
			w.pods[i].request = request
		}
		evicted := w.carryOut(w.available(snapshot.MemoryAvailable, 99*mi).after(time.Second))
		for i := range w.pods {
			w.pods[i].memory += int64(i%2*2-1) * mi
		}
		d := w.after(250 * time.Millisecond)
		if evicted += len(d.Victims); evicted != 1 {
			t.Errorf("request %d: %d pods were evicted for 1 Mi, want 1; then %v", request, evicted, names(d.Victims))
		}
	}
}
