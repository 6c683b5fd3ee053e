package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// carryOut makes the victims of a decision be in flight, so that they are gone after a second, and says how many there
// are.
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

// TestFluctuationIsNoGrowthOfCandidates: a host process has taken all but little of the memory and takes what pods give
// back. The pods' working sets go up and down a little, and none grows.
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
			gone := 0
			random := rand.New(rand.NewPCG(1, 2))
			for range 60 {
				for i := range w.pods {
					w.pods[i].memory = 40*mi + random.Int64N(test.wave)
				}
				free := max(test.left, w.signals[snapshot.MemoryAvailable].Available-100*mi)
				d := w.available(snapshot.MemoryAvailable, free).after(time.Second)
				if n := w.carryOut(d); n > 0 {
					gone += n
					t.Logf("%v: %v", w.now.Sub(start), names(d.Victims))
				}
			}
			if gone > test.most {
				t.Errorf("%d pods within their requests have gone in a minute, want %d at most", gone, test.most)
			}
		})
	}
}

// TestFluctuationAfterARestart: the agent has started while memory is short by very little. There is one short window
// to measure growth in. The pods' working sets go up and down, and nothing grows.
func TestFluctuationAfterARestart(t *testing.T) {
	for _, request := range []int64{0, 100 * mi} {
		w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")), smallPods(60)...)
		for i := range w.pods {
			w.pods[i].request = request
		}
		gone := w.carryOut(w.available(snapshot.MemoryAvailable, 99*mi).after(time.Second))
		for i := range w.pods {
			w.pods[i].memory += int64(i%2*2-1) * mi
		}
		d := w.after(250 * time.Millisecond)
		if gone += len(d.Victims); gone != 1 {
			t.Errorf("request %d: %d pods have gone for 1 Mi, want 1; then %v", request, gone, names(d.Victims))
		}
	}
}
