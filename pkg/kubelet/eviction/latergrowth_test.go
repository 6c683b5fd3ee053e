package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// A large idle pod is evicted without a fence, and takes long to stop. While the hard threshold stays met it begins to
// grow fast. It gets its fence before a third of what is left is used up, as another pod that begins to grow.
func TestVictimWithoutFenceThatBeginsToGrow(t *testing.T) {
	for _, rate := range []int64{100, 200, 400} {
		for _, full := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
			var found []string
			late := inPhases(t, 4, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
				b := newBurst(t, mi, 0, "small")
				b.capacity = 128 * gi
				b.add("big", 4*gi)
				f := &fakeFencer{n: b.node}
				b.config.Fencer = f
				k := b.pricedKernel()
				k.full = full
				b.config.Memory, b.killTakes = k, 5*time.Minute
				b.available(110 * mi)
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(rest)
					b.available(90 * mi)
					wait(2*time.Second + (rest-12*time.Second)/3)
					left := b.left()
					b.grows("big", rate*mi)
					for begin := time.Now(); time.Since(begin) < 2*time.Second && b.left() > 0 && len(f.made()) < 1; {
						wait(time.Millisecond / 2)
					}
					calls, percent := f.made(), 100-100*b.left()/left
					right = percent <= 33 && len(calls) > 0 && strings.HasPrefix(calls[0], "fence big ")
					found = append(found, fmt.Sprintf("%.12q at %d %%", calls, percent))
				})
				return right
			})
			if late > 0 {
				t.Errorf("%d MiB/s, a reading takes %v: %d of 4 are late: %q", rate, full, late, found)
			}
		}
	}
}

// A process outside of pods uses and frees memory for some time while a hard threshold is met, and a pod grows slowly.
// Then the former stops, with much left, and the latter grows fast. Half of that is not used up until it is evicted.
func TestSlowPodThatBecomesAHogAfterMuchWasOwed(t *testing.T) {
	for _, rate := range []int64{100, 200} {
		var found []string
		late := inPhases(t, 4, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, 50*mi, 0, "first", "second")
			k := &billed{priced: b.pricedKernel()}
			k.counters, k.usages, k.full = 100*time.Microsecond, 700*time.Microsecond, 5*time.Millisecond
			b.config.Memory, b.killTakes = k, 10*time.Hour
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				b.meetsThreshold(wait, 60*mi)
				b.grows("second", 3*mi)
				for begin := time.Now(); time.Since(begin) < 5*time.Second+rest%time.Second; {
					b.available(25 * mi)
					wait(50 * time.Millisecond)
					b.available(60 * mi)
					wait(50 * time.Millisecond)
				}
				b.available(90 * mi)
				wait(50 * time.Millisecond)
				b.freeze("second")
				left := b.left()
				b.grows("second", rate*mi)
				for b.left() > 0 && !strings.Contains(podsOf(b.fencer.victims()), "second") {
					wait(time.Millisecond / 2)
				}
				percent := 100 - 100*b.left()/left
				right = strings.Contains(podsOf(b.fencer.victims()), "second") && percent >= 0 && percent <= 50
				found = append(found, fmt.Sprintf("%d %%", percent))
			})
			return right
		})
		if late > 0 {
			t.Errorf("%d MiB/s: %d of 4 are late: %q", rate, late, found)
		}
	}
}

// limitedPriced is a priced kernel with a limit on the memory of all pods.
type limitedPriced struct {
	priced
	limit int64
}

func (k *limitedPriced) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	return k.within(k.limit, k.priced.ReadMemory(how))
}

func (k *limitedPriced) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	return k.within(k.limit, k.priced.ReadPods(how, uids))
}

// A hog meets the threshold of all pods, of whose memory some is page cache, and is fenced. While it is being stopped
// one pod takes what another one gives: nothing is used up. The hog goes alone.
func TestExchangeBesideAFencedHogAndPageCache(t *testing.T) {
	for _, threshold := range []int64{150, 300} {
		for _, hog := range []int64{1000, 2000} {
			for _, rate := range []int64{100, 200, 400} {
				for _, after := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond} {
					var found []string
					wrong := inPhases(t, 4, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
						b := newBurst(t, 100*mi, threshold*7/10*mi, "hog", "taker", "giver")
						b.capacity = 64 * gi
						b.pods["giver"].memory = 300 * mi
						k := &limitedPriced{priced: *b.pricedKernel(), limit: 8 * gi}
						k.full, k.busy = 20*time.Millisecond, true
						b.add("big", 2*gi)
						b.add("rest", k.limit-(threshold+50)*mi-b.used(), memoryRequest(16*gi))
						b.available(30 * gi)
						b.config.Memory, b.killTakes = k, 1500*time.Millisecond
						b.config.Thresholds = b.node.config(t, settings.ThresholdConfig{
							AllocatableEnforced: []string{"pods"},
							Hard:                map[string]string{"memory.available": fmt.Sprintf("%dMi", threshold)},
						}).Thresholds
						run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
							wait(rest)
							b.grows("hog", hog*mi)
							for len(b.fencer.victims()) == 0 {
								wait(time.Millisecond)
							}
							wait(after)
							b.grows("taker", rate*mi)
							b.grows("giver", -rate*mi)
							wait(280 * time.Second / time.Duration(max(rate, 280*5/2)))
							b.freeze("taker")
							b.freeze("giver")
							wait(4 * time.Second)
							found = append(found, podsOf(b.fencer.victims()))
						})
						return found[len(found)-1] == "hog"
					})
					if wrong > 0 {
						t.Errorf("threshold %d MiB, hog of %d MiB/s, exchange of %d MiB/s after %v: %d of 4 are wrong: %q",
							threshold, hog, rate, after, wrong, found)
					}
				}
			}
		}
	}
}
