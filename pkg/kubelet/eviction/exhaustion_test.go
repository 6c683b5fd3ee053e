package eviction

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
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

// A pod that grows slowly has met the threshold, and a large pod is being stopped. Then a hog begins, on a node where
// looking at pods takes long: the first look that shows its growth is followed by another one at once, which says who
// grows, instead of after the pause that the first one costs. Memory is not used up.
func TestHogBeginsWhileALargePodStopsOnASlowNode(t *testing.T) {
	for _, leak := range []int64{30, 60} {
		for phase := range 25 {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, mi, 0, "leak", "hog")
				b.capacity = 512 * gi
				b.config.Fencer = &fakeFencer{n: b.node}
				b.config.Memory, b.killTakes = b.kernels()["dear"], 1500*time.Millisecond
				b.add("big", 12*gi)
				b.pods["hog"].memory = gi
				b.available(105 * mi)
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(12 * time.Second)
					b.grows("leak", leak*mi)
					wait(400*time.Millisecond + time.Duration(phase)*13*time.Millisecond)
					b.freeze("leak")
					least, at := b.left(), b.left()
					b.grows("hog", 600*mi)
					for begin := time.Now(); time.Since(begin) < 2*time.Second; wait(2 * time.Millisecond) {
						least = min(least, b.left())
					}
					if least <= 0 {
						t.Errorf("leak %d, phase %d: memory is used up, %d MiB were left when the hog began; victims %s", leak, phase,
							at/mi, podsOf(b.fencer.victims()))
					}
				})
			})
		}
	}
}

// A hog is fenced and being stopped, and another decision is due, when a second hog begins on a node where looking at
// pods takes long. The first look that shows it does not say how fast it grows: the decision waits for the next one,
// since a large idle pod would go instead.
func TestSecondHogWhereLooksTakeLong(t *testing.T) {
	for _, look := range []time.Duration{2, 4, 5} {
		for _, after := range []time.Duration{50, 150, 250} {
			for phase := range 4 {
				synctest.Test(t, func(t *testing.T) { secondHog(t, look, after, phase) })
			}
		}
	}
}

// secondHog has the second hog begin some milliseconds after the first one was fenced.
func secondHog(t *testing.T, look, after time.Duration, phase int) {
	b := newBurst(t, 20*mi, 0, "first", "second")
	b.capacity = 128 * gi
	b.config.Fencer = &fakeFencer{n: b.node}
	b.config.Thresholds = b.node.config(t, hard("300Mi")).Thresholds
	k := b.pricedKernel()
	k.usages, k.full = look*time.Millisecond, 2*time.Millisecond
	b.config.Memory, b.killTakes = k, 3*time.Second
	b.add("big", 8*gi)
	b.available(320 * mi)
	run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
		wait(12*time.Second + time.Duration(phase)*37731*time.Microsecond)
		b.uses("first", 20*mi)
		b.grows("first", 100*mi)
		least, begun := b.left(), false
		for begin := time.Now(); time.Since(begin) < 2500*time.Millisecond; wait(time.Millisecond) {
			least = min(least, b.left())
			if v := b.fencer.victims(); len(v) > 0 && !begun && time.Since(v[0].at) > after*time.Millisecond {
				begun = true
				b.grows("second", 400*mi)
			}
		}
		if got := podsOf(b.fencer.victims()); got != "first, second" || least <= 0 {
			t.Errorf("looks of %d ms, the second hog after %d ms, phase %d: victims %s; at least %d MiB were left", look,
				after, phase, got, least/mi)
		}
	})
}

// A hog with 8 GiB crosses the threshold beside a pod that grows within its request, by less. It is fenced, and killed
// when half of what was left is used up, which releases far more than is missing. A large idle pod ranks before it.
// Its eviction would take effect a second later, and is not needed.
func TestHogThatCoversIsKilledAlone(t *testing.T) {
	for _, cost := range []string{"cheap", "dear"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, mi, 0, "hog")
			b.capacity = 512 * gi
			b.config.Fencer = &fakeFencer{n: b.node}
			b.config.Memory, b.killTakes = b.kernels()[cost], 1500*time.Millisecond
			b.pods["hog"].memory = 8 * gi
			b.add("big", 160*gi)
			b.add("within", 50*mi, memoryRequest(64*gi))
			b.available(150 * mi)
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(12 * time.Second)
				b.grows("within", 450*mi)
				b.grows("hog", 500*mi)
				least := b.left()
				for begin := time.Now(); time.Since(begin) < 2*time.Second; wait(time.Millisecond) {
					least = min(least, b.left())
				}
				if got := podsOf(b.fencer.victims()); got != "hog" || least <= 0 {
					t.Errorf("%s: victims %s, want hog; %d MiB left", cost, got, least/mi)
				}
			})
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

// A pod within its request grows beside the hog, by up to half of all growth, and a large one ranks before both. The
// hog is fenced first; the rest is decided when that has had its effect.
func TestHogBesideAGrowerWithinItsRequest(t *testing.T) {
	for _, c := range []struct{ hog, starter, big int64 }{{100, 60, 2}, {400, 150, 8}, {400, 250, 1}, {800, 300, 8}} {
		for _, cost := range []string{"cheap", "dear"} {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, mi, 0, "hog", "decoy")
				b.capacity = 128 * gi
				b.config.Memory, b.killTakes = b.kernels()[cost], 1500*time.Millisecond
				b.add("big", c.big*gi)
				b.add("starter", 50*mi, memoryRequest(16*gi))
				b.available(150 * mi)
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(12 * time.Second)
					b.grows("starter", c.starter*mi)
					b.grows("hog", c.hog*mi)
					for begin := time.Now(); time.Since(begin) < 3*time.Second && b.left() > 0; {
						wait(time.Millisecond)
					}
					if victims := b.fencer.victims(); len(victims) == 0 || victims[0].pod != "hog" || !victims[0].fenced {
						t.Errorf("%+v, %s: victims %s, want a fenced hog first", c, cost, podsOf(victims))
					}
				})
			})
		}
	}
}

// As before, with a second hog, so that two must be fenced; or the one within its request grows so fast that there is
// no time for a second decision. Memory is not used up.
func TestGrowersBesideOneWithinItsRequest(t *testing.T) {
	for _, c := range []struct{ hog, second, within, big, above int64 }{
		{200, 40, 50, 500, 50}, {100, 20, 50, 0, 50}, {100, 20, 50, 0, 150}, {1000, 0, 800, 0, 10}, {1000, 0, 800, 0, 50},
	} {
		for _, cost := range []string{"cheap", "dear"} {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, mi, 0, "hog", "second")
				b.capacity = 128 * gi
				b.config.Memory, b.killTakes = b.kernels()[cost], 1500*time.Millisecond
				b.add("within", 50*mi, memoryRequest(16*gi))
				if c.big > 0 {
					b.add("big", c.big*mi)
				}
				b.available((100 + c.above) * mi)
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(12 * time.Second)
					b.grows("hog", c.hog*mi)
					b.grows("second", c.second*mi)
					b.grows("within", c.within*mi)
					for begin := time.Now(); time.Since(begin) < 4*time.Second && b.left() > 0; {
						wait(2 * time.Millisecond)
					}
					if b.left() <= 0 {
						t.Errorf("%+v, %s: memory is used up; victims %s", c, cost, podsOf(b.fencer.victims()))
					}
				})
			})
		}
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

// As before, on a node whose pods fluctuate by some MiB: one of them has just used more, and another one less.
func TestBurstIsOverOnANodeThatFluctuates(t *testing.T) {
	const small = 8
	for _, noise := range []int64{2500 << 10, 4 * mi} {
		for _, every := range []time.Duration{110, 230} {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, mi, 0, "hog", "decoy")
				b.capacity = 128 * gi
				b.config.Memory, b.killTakes = b.kernels()["cheap"], 2500*time.Millisecond
				b.add("big", 2*gi)
				b.add("new", 5*mi, memoryRequest(20*mi))
				for i := range small {
					b.add(fmt.Sprintf("fluctuates-%d", i), 20*mi)
				}
				b.available(2130 * mi)
				run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
					step := 0
					fluctuate := func(d time.Duration) {
						for end := time.Now().Add(d); time.Now().Before(end); step++ {
							b.uses(fmt.Sprintf("fluctuates-%d", step%small), 20*mi+noise)
							b.uses(fmt.Sprintf("fluctuates-%d", (step+small-1)%small), 20*mi)
							wait(min(every*time.Millisecond, time.Until(end)))
						}
					}
					wait(12 * time.Second)
					b.grows("new", 2000*mi/30)
					wait(30 * time.Second)
					m.Wake() // A collection begins.
					wait(50 * time.Millisecond)
					b.freeze("new")
					b.available(105 * mi)
					fluctuate(100 * time.Millisecond)
					b.grows("hog", 400*mi)
					fluctuate(3 * time.Second)
					if got := podsOf(b.fencer.victims()); got != "hog" {
						t.Errorf("%d KiB each %v: victims %s, want hog", noise>>10, every*time.Millisecond, got)
					}
				})
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

// A victim that releases enough is being stopped, and a process outside of pods uses up what is left. Small pods grow a
// little beside it: evicting them would end hardly any growth.
func TestSmallGrowersBesideTheSystem(t *testing.T) {
	for _, rate := range []int64{4, 7} {
		exhausts(t, fmt.Sprintf("%d MiB/s", rate), "decoy", func(b *burst) func(*Manager, func(time.Duration)) {
			b.pods["decoy"].memory = 4 * gi
			b.available(110 * mi)
			return func(_ *Manager, wait func(time.Duration)) {
				b.grows("decoy", 30*mi)
				wait(400 * time.Millisecond)
				b.freeze("decoy")
				for i := range 3 {
					b.grows(fmt.Sprintf("small-%02d", i), rate*mi)
				}
				for range 200 {
					wait(5 * time.Millisecond)
					b.crosses(75 * mi / 200)
				}
				for i := range 3 {
					b.freeze(fmt.Sprintf("small-%02d", i))
				}
			}
		})
	}
}

// starter adds a pod that uses little yet. With overhead it can have no fence.
func (b *burst) starter(name string, overhead bool) {
	b.add(name, 5*mi)
	if overhead {
		b.pods[name].object.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1m")}
	}
}

// Replicas start while a victim that releases enough is being stopped, and what they use is far less than what is left:
// none of them is evicted, also if one of them was before.
func TestReplicasStartWhileALargePodStops(t *testing.T) {
	for _, c := range []struct {
		replicas, rate int64
		overhead       bool
	}{{1, 100, false}, {4, 30, false}, {8, 15, false}, {2, 60, true}} {
		what := fmt.Sprintf("%d replicas, %d MiB/s, overhead %t", c.replicas, c.rate, c.overhead)
		exhausts(t, what, "decoy", func(b *burst) func(*Manager, func(time.Duration)) {
			b.pods["decoy"].memory = 4 * gi
			for i := range c.replicas {
				b.starter(fmt.Sprintf("new-%d", i), c.overhead)
			}
			b.available(110 * mi)
			return func(_ *Manager, wait func(time.Duration)) {
				b.grows("decoy", 30*mi)
				wait(500 * time.Millisecond)
				b.freeze("decoy")
				wait(300 * time.Millisecond)
				for i := range c.replicas {
					b.grows(fmt.Sprintf("new-%d", i), c.rate*mi)
				}
				wait(400 * time.Millisecond)
				for i := range c.replicas {
					b.freeze(fmt.Sprintf("new-%d", i))
				}
			}
		})
	}
}

// Replicas start at the crossing, each so slowly that none is fenced: that they are evicted first would end no growth
// in time. The large pod goes.
func TestSlowReplicasAtTheCrossing(t *testing.T) {
	exhausts(t, "10 replicas, 8 MiB/s", "big", func(b *burst) func(*Manager, func(time.Duration)) {
		b.add("big", 12*gi)
		for i := range 10 {
			b.add(fmt.Sprintf("new-%d", i), 5*mi)
		}
		b.available(140 * mi)
		return func(_ *Manager, wait func(time.Duration)) {
			for i := range 10 {
				b.grows(fmt.Sprintf("new-%d", i), 8*mi)
			}
			wait(time.Second)
			for i := range 10 {
				b.freeze(fmt.Sprintf("new-%d", i))
			}
		}
	})
}

// Many pods grow fast together at the crossing, each by less than a tenth of it all, or none can be fenced. Those that
// grow are evicted, and not the idle ones that rank before them.
func TestManyGrowersBesideIdlePods(t *testing.T) {
	for _, c := range []struct {
		growers, rate int64
		overhead      bool
	}{{20, 20, false}, {12, 60, false}, {4, 60, true}, {2, 100, true}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, mi, 0)
			b.config.Memory, b.killTakes = b.pricedKernel(), 1500*time.Millisecond
			for i := range c.growers {
				b.starter(fmt.Sprintf("new-%02d", i), c.overhead)
			}
			b.available(130 * mi)
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(12 * time.Second)
				for i := range c.growers {
					b.grows(fmt.Sprintf("new-%02d", i), c.rate*mi)
				}
				for begin := time.Now(); time.Since(begin) < 3*time.Second && b.left() > 0; {
					wait(2 * time.Millisecond)
				}
				idle := 0
				for _, v := range b.fencer.victims() {
					if !strings.HasPrefix(v.pod, "new-") {
						idle++
					}
				}
				if idle > 1 || len(b.fencer.victims()) == 0 {
					t.Errorf("%+v: victims %s", c, podsOf(b.fencer.victims()))
				}
			})
		})
	}
}

// delayed is a collector that answers some time after it has read the node.
type delayed struct {
	Collector
	by atomic.Int64
}

func (c *delayed) Collect(ctx context.Context) snapshot.Stats {
	s := c.Collector.Collect(ctx)
	<-time.After(time.Duration(c.by.Load()))
	return s
}

// clears counts rounds that say that no hard threshold is met, after one that says that one is.
type clears struct {
	met   bool
	count int
}

func (*clears) Name() string                    { return "clears" }
func (*clears) Result(context.Context, *Result) {}

func (c *clears) Round(_ context.Context, r *Round) {
	if r.Decision.Condition(v1.NodeMemoryPressure).HardMet {
		c.met = true
	} else if c.met {
		c.count++
	}
}

// A collection begins on a calm node, and so without the memory of pods. While the runtime answers, a hog uses up
// memory and is evicted. When the collection ends, memory is read for its round: pressure is not over.
func TestCollectionThatBeganOnACalmNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 12*gi, 0, "hog")
		b.config.Memory, b.killTakes = b.pricedKernel(), 10*time.Second
		c := &delayed{Collector: b.config.Collector}
		b.config.Collector = c
		l := &clears{}
		b.config.Sinks = append(b.config.Sinks, l)
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(12 * time.Second)
			c.by.Store(int64(7 * time.Second))
			m.Wake()
			wait(100 * time.Millisecond)
			b.grows("hog", 2*gi)
			wait(15 * time.Second)
			if got := podsOf(b.fencer.victims()); got != "hog" {
				t.Errorf("victims %s", got)
			}
			if !l.met || l.count > 0 {
				t.Errorf("%d rounds say that the hard threshold is not met any more, met %t", l.count, l.met)
			}
		})
	})
}
