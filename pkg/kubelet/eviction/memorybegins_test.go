package eviction

import (
	"testing"
	"testing/synctest"
	"time"
)

// Another pod grows slowly when a hog begins, and a third one, which is large and uses more than its request, does not
// grow at all: it would cover what the slow one will use in minutes. The hog is the only victim, and fenced.
func TestHogBesideSlowGrowth(t *testing.T) {
	for _, test := range []struct{ above, rate, slow int64 }{
		{30, 1000, 3}, {30, 1000, 10}, {30, 1000, 20}, {15, 400, 3}, {15, 400, 10}, {60, 2000, 10}, {120, 1000, 10},
		{5, 1000, 10}, {5, 400, 10},
	} {
		wrong := 0
		for phase := range 12 {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 0, 0, "hog", "slow")
				b.add("large", 8*gi)
				b.available(600 * mi)
				b.config.Memory = b.pricedKernel()
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(12*time.Second + time.Duration(phase)*21731*time.Microsecond)
					b.available((100 + test.above + 4*test.slow) * mi)
					b.grows("slow", test.slow*mi)
					wait(4 * time.Second)
					b.grows("hog", test.rate*mi)
					// All memory is used up then.
					wait(time.Duration(100+test.above) * time.Second / time.Duration(test.rate+test.slow))
					if !b.onlyFenced("hog") {
						wrong++
					}
				})
			})
		}
		if wrong > 0 {
			t.Errorf("%d MiB/s, %d MiB above the threshold, beside %d MiB/s: %d of 12 decisions were wrong",
				test.rate, test.above, test.slow, wrong)
		}
	}
}

// A pod grows for 200 ms, and stops some time before a hog begins. The hog is the only victim.
func TestHogAfterABurst(t *testing.T) {
	const burst = 200 * time.Millisecond
	for _, test := range []struct {
		above, rate, grown int64
		gap                time.Duration
	}{
		{15, 400, 10, 200}, {15, 400, 50, 200}, {15, 400, 50, 400}, {15, 1000, 50, 200}, {30, 1000, 10, 400},
		{30, 1000, 50, 400}, {30, 1000, 200, 200}, {60, 1000, 200, 200}, {5, 1000, 50, 200},
	} {
		wrong := 0
		for phase := range 12 {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 0, 0, "hog", "ended")
				b.available((100 + test.above + test.grown) * mi)
				b.config.Memory = b.pricedKernel()
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(14*time.Second + time.Duration(phase)*21731*time.Microsecond)
					b.grows("ended", test.grown*mi*int64(time.Second/burst))
					wait(burst)
					b.freeze("ended")
					wait(test.gap * time.Millisecond)
					b.grows("hog", test.rate*mi)
					wait(time.Duration(test.above)*time.Second/time.Duration(test.rate) + 60*time.Millisecond)
					if !b.onlyFenced("hog") {
						wrong++
					}
				})
			})
		}
		if wrong > 0 {
			t.Errorf("%d MiB/s, %d MiB above the threshold, %d ms after a burst of %d MiB: %d of 12 decisions were wrong",
				test.rate, test.above, test.gap, test.grown, wrong)
		}
	}
}

// onlyFenced reports whether a pod is the only victim, and fenced.
func (b *burst) onlyFenced(pod string) bool {
	victims := b.fencer.victims()
	return len(victims) == 1 && victims[0].pod == pod && victims[0].fenced
}

// A hog begins some MiB above the threshold, beside a slow leak. Then another pod frees memory once, as when one of its
// processes ends. The hog is the victim at the crossing, and no pod at rest.
func TestMemoryIsFreedWhenAHogHasBegun(t *testing.T) {
	for _, rate := range []int64{60, 100, 200} {
		for _, above := range []int64{3, 12} {
			for _, freed := range []int64{10, 40} {
				wrong := inPhases(t, 12, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
					b := newBurst(t, mi, 0, "hog", "other", "leak")
					b.pods["other"].memory = (5 + freed) * mi
					b.config.Memory, b.killTakes = b.pricedKernel(), time.Hour
					b.available((100 + 12 + above) * mi)
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(rest)
						b.grows("leak", 6*mi)
						wait(2 * time.Second)
						b.grows("hog", rate*mi)
						wait(time.Duration(above*800/rate) * time.Millisecond) // One fifth of it is left.
						b.uses("other", 5*mi)
						for b.left() > 80*mi && len(b.fencer.victims()) == 0 {
							wait(time.Millisecond)
						}
						right = podsOf(b.fencer.victims()) == "hog"
					})
					return right
				})
				if wrong > 0 {
					t.Errorf("%d MiB/s, %d MiB above, %d MiB freed: %d of 12 are wrong", rate, above, freed, wrong)
				}
			}
		}
	}
}
