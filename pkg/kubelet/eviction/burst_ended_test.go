package eviction

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestBurstThatHasEnded: a pod has used much memory within half a second, and does not grow any more when a leak
// crosses the threshold. Only the leak is evicted.
func TestBurstThatHasEnded(t *testing.T) {
	for _, still := range []time.Duration{20, 40, 80, 150} {
		still *= time.Millisecond
		for _, pause := range []time.Duration{0, 300 * time.Microsecond} {
			t.Run(fmt.Sprintf("%v before the crossing, looks take %v", still, pause), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBurst(t, 300*mi, 0, "burst", "leak")
					if pause > 0 {
						b.config.Memory = &costly{kernel: kernel{node: b.node}}
					}
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(15 * time.Second)
						const crossing = time.Second
						b.grows("leak", 100*mi)
						wait(crossing - still - 500*time.Millisecond)
						b.grows("burst", 400*mi)
						wait(500 * time.Millisecond)
						b.freeze("burst")
						wait(still + 30*time.Millisecond)
						b.expectFenced(t, "leak")
						wait(time.Minute)
						b.expectFenced(t, "leak")
					})
				})
			})
		}
	}
}

// TestHogThatWaitsForACPU: a hog is not executed for some time before another pod crosses the threshold. It is fenced
// when it goes on.
func TestHogThatWaitsForACPU(t *testing.T) {
	for _, still := range []time.Duration{8, 15, 40, 150} {
		still *= time.Millisecond
		t.Run(still.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 300*mi, 0, "hog", "leak")
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(15 * time.Second)
					b.grows("leak", 100*mi)
					wait(750*time.Millisecond - still)
					b.grows("hog", 900*mi)
					wait(250 * time.Millisecond)
					b.freeze("hog")
					wait(still)
					b.grows("hog", 900*mi)
					wait(30 * time.Millisecond)
					got := b.fencer.victims()
					if !slices.ContainsFunc(got, func(v fencedPod) bool { return v.pod == "hog" && v.fenced }) {
						t.Errorf("victims %v, want the hog with a fence", got)
					}
				})
			})
		})
	}
}

// TestOnlyHogThatWaitsForACPU: nothing else grows while a hog is not executed. It is the victim, with a fence, at once
// when it crosses the threshold. (After longer than the looks span, it is the victim without one, until it has grown.)
func TestOnlyHogThatWaitsForACPU(t *testing.T) {
	for _, still := range []time.Duration{15, 40, 100} {
		still *= time.Millisecond
		t.Run(still.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 250*mi+mi/2, 0, "hog")
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(15 * time.Second)
					b.grows("hog", 1000*mi)
					wait(250 * time.Millisecond)
					b.freeze("hog")
					wait(still)
					b.expectFenced(t)
					b.grows("hog", 1000*mi)
					wait(10 * time.Millisecond)
					b.expectFenced(t, "hog")
					wait(time.Minute)
					b.expectFenced(t, "hog")
				})
			})
		})
	}
}
