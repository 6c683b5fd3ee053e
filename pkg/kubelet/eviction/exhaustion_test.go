package eviction

import (
	"fmt"
	"testing"
	"time"
)

// exhausts plays a scene in two phases, with each of the kernels, and watches the node afterwards. It reports an error
// if other pods than want are evicted, in that order, or if memory is used up.
func exhausts(t *testing.T, what, want string, scene func(b *burst) (play func(m *Manager, wait func(time.Duration)))) {
	t.Helper()
	for _, cost := range []string{"cheap", "dear"} {
		inPhases(t, 2, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, mi, 0, "hog", "decoy")
			b.capacity = 128 * gi
			b.config.Memory, b.killTakes = b.kernels()[cost], 1500*time.Millisecond
			play := scene(b)
			run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
				wait(rest)
				play(m, wait)
				least := b.left()
				for begin := time.Now(); time.Since(begin) < 4*time.Second; wait(5 * time.Millisecond) {
					least = min(least, b.left())
				}
				victims := b.fencer.victims()
				if got := podsOf(victims); got != want || least <= 0 {
					t.Errorf("%s, %s: victims %s, want %s; at least %d MiB were left", what, cost, got, want, least/mi)
				}
			})
			return true
		})
	}
}

// A large pod that does not grow covers what is missing, and what the hog would use up within the forecast. What is
// left is used up while it is killed: the hog goes, and alone.
func TestLargePodBesideAHog(t *testing.T) {
	for _, c := range []struct{ big, rate int64 }{{12, 36}, {25, 80}, {48, 150}, {100, 300}} {
		what := fmt.Sprintf("big %d GiB, hog %d MiB/s", c.big, c.rate)
		exhausts(t, what, "hog", func(b *burst) func(*Manager, func(time.Duration)) {
			b.add("big", c.big*gi)
			b.available(105 * mi)
			return func(*Manager, func(time.Duration)) { b.grows("hog", c.rate*mi) }
		})
	}
}

// A pod with 4 GiB is being stopped, which is more than is missing, when a hog begins: it uses up what is left before
// that is released.
func TestHogWhileALargePodStops(t *testing.T) {
	for _, rate := range []int64{200, 400} {
		exhausts(t, fmt.Sprintf("%d MiB/s", rate), "decoy, hog", func(b *burst) func(*Manager, func(time.Duration)) {
			b.pods["decoy"].memory = 4 * gi
			b.available(110 * mi)
			return func(_ *Manager, wait func(time.Duration)) {
				b.grows("decoy", 30*mi)
				wait(500 * time.Millisecond)
				b.freeze("decoy")
				b.grows("hog", rate*mi)
			}
		})
	}
}

// A pod is being stopped, which is more than is missing. Another one grows, but what is left lasts until then: it
// stays.
func TestSlowGrowerWhileALargePodStops(t *testing.T) {
	exhausts(t, "30 MiB/s", "decoy", func(b *burst) func(*Manager, func(time.Duration)) {
		b.pods["decoy"].memory = 8 * gi
		b.available(110 * mi)
		return func(_ *Manager, wait func(time.Duration)) {
			b.grows("decoy", 30*mi)
			wait(500 * time.Millisecond)
			b.freeze("decoy")
			b.grows("hog", 30*mi)
			wait(1500 * time.Millisecond)
			b.freeze("hog")
		}
	})
}

// A fenced pod that has much memory is being stopped when a second hog begins.
func TestSecondHogBesideALargeFirst(t *testing.T) {
	for _, has := range []int64{300, 3000} {
		for _, rate := range []int64{100, 400} {
			what := fmt.Sprintf("the first has %d MiB, the second uses %d MiB/s", has, rate)
			exhausts(t, what, "hog, decoy", func(b *burst) func(*Manager, func(time.Duration)) {
				b.pods["hog"].memory = has * mi
				b.available(150 * mi)
				return func(_ *Manager, wait func(time.Duration)) {
					b.grows("hog", 400*mi)
					wait(240 * time.Millisecond)
					b.grows("decoy", rate*mi)
				}
			})
		}
	}
}

// Beside the hog a pod within its request grows a little, and a large one ranks before both. The hog goes first, and
// then what the other one needs.
func TestStarterBesideAHog(t *testing.T) {
	for _, rate := range []int64{20, 40, 60} {
		exhausts(t, fmt.Sprintf("%d MiB/s", rate), "hog, big", func(b *burst) func(*Manager, func(time.Duration)) {
			b.add("big", 8*gi)
			b.add("starter", 50*mi, memoryRequest(4*gi))
			b.available(110*mi + rate*mi/2)
			return func(_ *Manager, wait func(time.Duration)) {
				b.grows("starter", rate*mi)
				wait(500 * time.Millisecond)
				b.grows("hog", 400*mi)
			}
		})
	}
}

// A pod has used 2 GiB in half a minute and has stopped; a collection was made just before that. Then a hog is fenced.
// While it is being stopped nothing grows, and no other pod is evicted for what the first one has used.
func TestBurstIsOverWhenAHogIsFenced(t *testing.T) {
	for _, quiet := range []time.Duration{100, 300, 600} {
		for _, pods := range []int64{1, 3} {
			what := fmt.Sprintf("%d pods, quiet for %v", pods, quiet*time.Millisecond)
			exhausts(t, what, "hog", func(b *burst) func(*Manager, func(time.Duration)) {
				b.add("big", 2*gi)
				for i := range pods {
					b.add(fmt.Sprintf("new-%d", i), 5*mi, memoryRequest(20*mi))
				}
				b.available((130 + pods*2000) * mi)
				return func(m *Manager, wait func(time.Duration)) {
					for i := range pods {
						b.grows(fmt.Sprintf("new-%d", i), 2000*mi/30)
					}
					wait(30 * time.Second)
					m.Wake() // A collection begins.
					wait(50 * time.Millisecond)
					for i := range pods {
						b.freeze(fmt.Sprintf("new-%d", i))
					}
					b.available(105 * mi)
					wait(quiet * time.Millisecond)
					b.grows("hog", 400*mi)
				}
			})
		}
	}
}

// The first victim ends while the threshold is met, which makes a collection. Another pod has grown for more than a
// second: the round of that collection knows that, and the large pod stays.
func TestCollectionKnowsWhoGrowsWhileAThresholdIsMet(t *testing.T) {
	for _, rate := range []int64{20, 25, 40} {
		exhausts(t, fmt.Sprintf("%d MiB/s", rate), "decoy, hog", func(b *burst) func(*Manager, func(time.Duration)) {
			b.add("big", 2*gi)
			b.available(105 * mi)
			return func(_ *Manager, wait func(time.Duration)) {
				b.grows("decoy", 100*mi)
				wait(80 * time.Millisecond)
				b.freeze("decoy")
				b.grows("hog", rate*mi)
			}
		})
	}
}
