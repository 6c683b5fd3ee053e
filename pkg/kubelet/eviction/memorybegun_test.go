package eviction

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A pod grows slowly towards the threshold. Just above it another one begins to grow fast, which has freed memory 300
// ms before, as a garbage collector does: since then it has grown, though it has less than a second ago. It is the
// victim, and not the slow one.
func TestHogThatHasFreedBeforeItBegins(t *testing.T) {
	const slow = 28
	for _, freed := range []int64{0, 4, 16} {
		for _, fast := range []int64{200, 400} {
			for _, above := range []int64{700, 1400} {
				what := fmt.Sprintf("%d MiB freed, %d MiB/s, %d KiB above", freed, fast, above)
				othersThanHog(t, what, 12, func(b *burst) (int64, func(func(time.Duration))) {
					b.pods["hog"].memory += freed * mi
					b.available(100*mi + above<<10 + 2*slow*mi)
					return fast * mi, func(wait func(time.Duration)) {
						b.grows("decoy", slow*mi)
						wait(1700 * time.Millisecond)
						b.mu.Lock()
						b.pods["hog"].memory -= freed * mi
						b.system += freed * mi // What is left stays the same.
						b.mu.Unlock()
						wait(300 * time.Millisecond)
					}
				})
			}
		}
	}
}

// A pod grows slowly towards the threshold. So near to it another one begins to grow fast that it has gained less than
// 1 MiB when the crossing is read, but more than counters of pods at rest vary by. It is the victim.
func TestHogBeginsJustBeforeASlowPodCrosses(t *testing.T) {
	for _, test := range []struct{ slow, fast, above int64 }{
		{9, 800, 193}, {9, 100, 445}, {18, 100, 560}, {12, 200, 526}, {5, 100, 300},
	} {
		what := fmt.Sprintf("%d and %d MiB/s, %d KiB above", test.slow, test.fast, test.above)
		othersThanHog(t, what, 12, func(b *burst) (int64, func(func(time.Duration))) {
			b.available(100*mi + test.above<<10 + 2*test.slow*mi)
			return test.fast * mi, func(wait func(time.Duration)) {
				b.grows("decoy", test.slow*mi)
				wait(2 * time.Second)
			}
		})
	}
}

// The same where counters grow by 64 pages at once: the hog has gained just so much when the crossing is read.
func TestHogBeginsByABatchOfPagesBeforeASlowPodCrosses(t *testing.T) {
	for _, test := range []struct{ slow, fast, before int64 }{
		{9, 60, 1}, {9, 60, 2}, {9, 150, 1}, {18, 100, 1}, {18, 100, 2}, {18, 150, 1}, {28, 100, 1}, {28, 100, 2},
	} {
		wrong := inPhases(t, 6, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, mi, 0, "hog", "decoy")
			b.config.Memory, b.killTakes = &batched{*b.pricedKernel()}, time.Hour
			b.available(100*mi + 2*test.slow*mi + test.before*(test.slow+test.fast)*mi/1000)
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(rest)
				b.grows("decoy", test.slow*mi)
				wait(2 * time.Second)
				b.grows("hog", test.fast*mi)
				wait(time.Duration(50 * int64(time.Second) / test.fast))
				got := b.fencer.victims()
				right = len(got) == 1 && got[0].pod == "hog"
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("%d and %d MiB/s, %d ms before: in %d of 6 phases the victims are wrong", test.slow, test.fast, test.before,
				wrong)
		}
	}
}

// For 15 seconds what is left goes up and down by 3 MiB just above the threshold, so that much is owed for reading.
// Then a pod meets it and is fenced. A tenth of a second to half a second later a second one begins to use up what is
// left, and is found by the time that it has used up a fifth of that: not only when half is used up.
func TestSecondHogAfterMemoryVariedAboveTheThreshold(t *testing.T) {
	for _, counters := range []time.Duration{300 * time.Microsecond, 600 * time.Microsecond, time.Millisecond} {
		const phases = 40
		var late []int
		for phase := range phases {
			if percent := foundAfterVarying(t, counters, phase); percent > 20 {
				late = append(late, percent)
			}
		}
		if len(late) > 0 {
			t.Errorf("counters in %v: in %d of %d scenes the second pod is found late: percent of what was left used up: %v",
				counters, len(late), phases, late)
		}
	}
}

// foundAfterVarying returns how much the second hog has used up of what was left when it began, in percent.
func foundAfterVarying(t *testing.T, counters time.Duration, phase int) (percent int) {
	t.Helper()
	const rate = 50 * mi
	synctest.Test(t, func(t *testing.T) {
		each := time.Duration(10+phase) * time.Millisecond
		b := newBurst(t, int64(4+phase%5)*mi, 0, "first", "second", "varies")
		k := b.pricedKernel()
		k.counters, k.usages, k.full = counters, counters, 3*counters
		b.config.Memory, b.killTakes = k, time.Hour
		run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
			vary := func(lasts time.Duration, victims int) {
				end := time.Now().Add(lasts)
				for time.Now().Before(end) && len(b.fencer.victims()) < victims {
					b.mu.Lock()
					b.pods["varies"].memory = 5*mi + 3*mi*(time.Now().UnixNano()/int64(each)%2)
					b.mu.Unlock()
					wait(5 * time.Millisecond)
				}
			}
			vary(15*time.Second+time.Duration(phase)*21731*time.Microsecond, 1)
			b.grows("first", 100*mi)
			vary(5*time.Second, 1)
			b.freeze("first")
			vary(time.Duration(100+10*phase)*time.Millisecond, 2)
			percent = b.found(wait, rate)
		})
	})
	return percent
}
