package eviction

import (
	"fmt"
	"testing"
	"time"
)

// The only pod that grows pauses near the threshold (garbage collection, the next request), and goes on. It is the
// victim, not the pod that uses most above its request, which has not changed at all.
func TestPodThatGoesOnAfterAPause(t *testing.T) {
	for pause, above := range map[time.Duration][]int64{
		50 * time.Millisecond:  {256, 512, 1024, 2048},
		300 * time.Millisecond: {256, 512, 1024, 2048},
		800 * time.Millisecond: {256, 512, 1024, 2048},
	} {
		for _, kib := range above {
			for _, rate := range []int64{60, 200, 600} {
				phase := int64(0)
				othersThanHog(t, fmt.Sprintf("pause of %v, %d KiB above, %d MiB/s", pause, kib, rate), 4,
					func(b *burst) (int64, func(func(time.Duration))) {
						phase++
						b.add("big", 8*gi)
						b.available(200*mi + kib<<10 + phase*20<<10)
						return rate * mi, func(wait func(time.Duration)) {
							b.grows("hog", 200*mi)
							wait(time.Second / 2)
							b.freeze("hog")
							wait(pause)
						}
					})
			}
		}
	}
}

// A pod grows, and pauses. Meanwhile another one gains a little once, of its own or in page cache. The former goes on
// just above the threshold, and is the victim: it grows as fast as it does now, not as in the time with the pause.
func TestPodThatGoesOnAfterAnotherHasGrownALittle(t *testing.T) {
	for _, pause := range []time.Duration{300, 600} {
		for _, cache := range []bool{false, true} {
			for _, gain := range []int64{300, 1200} {
				for _, above := range []int64{1, 4} {
					for _, rate := range []int64{100, 200} {
						what := fmt.Sprintf("pause of %v, gain of %d KiB (page cache: %t), %d MiB above, %d MiB/s",
							pause*time.Millisecond, gain, cache, above, rate)
						othersThanHog(t, what, 3, func(b *burst) (int64, func(func(time.Duration))) {
							b.add("big", 8*gi)
							b.available(100*mi + above*mi + rate*mi/2 + gain<<10)
							return rate * mi, func(wait func(time.Duration)) {
								b.grows("hog", rate*mi)
								wait(time.Second / 2)
								b.freeze("hog")
								wait(pause * time.Millisecond / 2)
								b.mu.Lock()
								if cache {
									b.pods["decoy"].cached += gain << 10
								} else {
									b.pods["decoy"].memory += gain << 10
								}
								b.mu.Unlock()
								wait(pause * time.Millisecond / 2)
							}
						})
					}
				}
			}
		}
	}
}

// A pod with huge pages pauses, and goes on. The look that shows this is made some time after the one before, and the
// next ones, a few milliseconds later, show no further page yet.
func TestPodWithHugePagesThatGoesOn(t *testing.T) {
	for _, pause := range []time.Duration{300, 600, 800} {
		for _, above := range []int64{1, 3} {
			for _, rate := range []int64{70, 200} {
				phase := int64(0)
				what := fmt.Sprintf("pause of %v, %d MiB above, %d MiB/s", pause*time.Millisecond, above, rate)
				othersThanHog(t, what, 4, func(b *burst) (int64, func(func(time.Duration))) {
					phase++
					b.add("big", 8*gi)
					b.pods["hog"].step = hugePage
					b.available(100*mi + above*mi + 30*mi + phase*20<<10)
					return rate * mi, func(wait func(time.Duration)) {
						b.grows("hog", 60*mi)
						wait(time.Second / 2)
						b.freeze("hog")
						wait(pause * time.Millisecond)
					}
				})
			}
		}
	}
}

// While a pod pauses, another one grows and stops. The former has stopped then, but goes on moments later.
func TestPodThatGoesOnAfterAnotherHasStopped(t *testing.T) {
	for _, quiet := range []time.Duration{30, 60, 150} {
		for _, above := range []int64{1, 3} {
			for _, rate := range []int64{70, 400} {
				what := fmt.Sprintf("quiet for %v, %d MiB above, %d MiB/s", quiet*time.Millisecond, above, rate)
				othersThanHog(t, what, 3, func(b *burst) (int64, func(func(time.Duration))) {
					b.add("big", 8*gi)
					b.available(100*mi + above*mi + rate*mi/2 + 10*mi)
					return rate * mi, func(wait func(time.Duration)) {
						b.grows("hog", rate*mi)
						wait(time.Second / 2)
						b.freeze("hog")
						wait(100 * time.Millisecond)
						b.grows("decoy", 100*mi)
						wait(100 * time.Millisecond)
						b.freeze("decoy")
						wait(quiet * time.Millisecond)
					}
				})
			}
		}
	}
}

// A pod grows slowly, pauses, and goes on fast.
func TestPodThatGrowsSlowlyBeforeAPause(t *testing.T) {
	for _, c := range []struct{ before, pause, above int64 }{{5, 600, 1}, {5, 600, 4}, {10, 300, 4}} {
		for _, rate := range []int64{100, 400} {
			othersThanHog(t, fmt.Sprintf("%+v, %d MiB/s", c, rate), 4, func(b *burst) (int64, func(func(time.Duration))) {
				b.add("big", 8*gi)
				b.available(100*mi + c.above*mi + c.before*mi*8/10)
				return rate * mi, func(wait func(time.Duration)) {
					b.grows("hog", c.before*mi)
					wait(800 * time.Millisecond)
					b.freeze("hog")
					wait(time.Duration(c.pause) * time.Millisecond)
				}
			})
		}
	}
}

// A pod grows for a part of each period only, since it has a CPU limit or collects garbage, while the system or another
// pod grows slowly. It is the victim also if the threshold is crossed while it waits.
func TestPodThatGrowsForAPartOfEachPeriod(t *testing.T) {
	for _, c := range []struct {
		// runs of period, in milliseconds; mean is the rate of the hog, system and leak those of others, in MiB/s.
		runs, period       int
		mean, system, leak int64
	}{
		{5, 100, 50, 5, 0}, {5, 100, 200, 50, 0}, {10, 100, 100, 20, 0}, {20, 100, 200, 5, 0}, {50, 100, 100, 50, 0},
		{300, 400, 225, 100, 0}, {200, 250, 80, 30, 0}, {10, 100, 200, 0, 5}, {20, 100, 100, 0, 5},
	} {
		for _, cost := range []string{"cheap", "dear"} {
			phase := int64(0)
			wrong := inPhases(t, 10, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
				b := newBurst(t, mi, 0, "hog", "leak")
				b.add("big", 8*gi)
				b.config.Memory, b.killTakes = b.kernels()[cost], time.Hour
				b.available(250*mi + phase*1337<<10)
				phase++
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(rest)
					for ms, left := 0, 100*mi; left > 50*mi && len(b.fencer.victims()) == 0; ms++ {
						wait(time.Millisecond)
						b.mu.Lock()
						if ms%c.period < c.runs {
							b.pods["hog"].memory += c.mean * mi / 1000 * int64(c.period) / int64(c.runs)
						}
						b.pods["leak"].memory += c.leak * mi / 1000
						b.system += c.system * mi / 1000
						left = b.capacity - b.system - b.used()
						b.mu.Unlock()
					}
					right = podsOf(b.fencer.victims()) == "hog"
				})
				return right
			})
			if wrong > 0 {
				t.Errorf("%+v, %s: in %d of 10 phases the victims are wrong", c, cost, wrong)
			}
		}
	}
}
