package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// dear is a kernel where each pod that is read takes a third of a millisecond (changedCount), and where the thread that
// reads several pods waits for a CPU.
type dear struct {
	priced
	wait time.Duration
}

const onePod = 330 * time.Microsecond

func (k *dear) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	if len(uids) > 0 {
		<-time.After(k.wait)
	}
	k.pay(time.Duration(len(uids))*onePod + k.counters/2)
	return k.kernel.ReadPods(how, uids)
}

func (k *dear) ReadPod(how snapshot.Counting, uid types.UID) (snapshot.PodMemory, error) {
	r, err := k.kernel.ReadPod(how, uid)
	k.pay(onePod)
	return r, err
}

// kernels returns a cheap kernel for a node, and one where looking at pods takes long.
func (b *burst) kernels() map[string]memorywatch.Reader {
	d := &dear{priced: *b.pricedKernel()}
	d.usages, d.full = 700*time.Microsecond, 40*time.Millisecond
	return map[string]memorywatch.Reader{"cheap": b.pricedKernel(), "dear": d}
}

// podsOf returns the names of victims.
func podsOf(victims []fencedPod) string {
	var names []string
	for _, v := range victims {
		names = append(names, v.pod)
	}
	return strings.Join(names, ", ")
}

// othersThanHog plays a scene in several phases, with each of the kernels. It reports an error if in any of them
// another pod than the hog is evicted, or none is, by the time that half of the 100 MiB at the threshold are used up.
func othersThanHog(t *testing.T, what string, phases int,
	scene func(b *burst) (rate int64, play func(wait func(time.Duration))),
) {
	t.Helper()
	for _, cost := range []string{"cheap", "dear"} {
		var victims []string
		wrong := inPhases(t, phases, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, mi, 0, "hog", "decoy")
			b.config.Memory, b.killTakes = b.kernels()[cost], time.Hour
			rate, play := scene(b)
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(rest)
				play(wait)
				b.grows("hog", rate)
				wait(time.Duration(float64(50*mi) / float64(rate) * float64(time.Second)))
				got := b.fencer.victims()
				if right = len(got) == 1 && got[0].pod == "hog"; !right {
					victims = append(victims, podsOf(got))
				}
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("%s, %s: in %d of %d phases the victims are wrong: %v", what, cost, wrong, phases, victims)
		}
	}
}

// A pod grows, and stops; less than a second later, just above the threshold, another one begins to grow. The latter is
// the victim. It has grown by less than counters lag, and the former accounts for most growth of the last second.
func TestPodThatHasStoppedBeforeAnotherBegins(t *testing.T) {
	for _, quiet := range []time.Duration{100, 300, 800} {
		for _, above := range []int64{256 << 10, mi} {
			for _, rate := range []int64{70, 90, 200, 400} {
				what := fmt.Sprintf("quiet for %v, %d KiB above, %d MiB/s", quiet*time.Millisecond, above>>10, rate)
				othersThanHog(t, what, 10, func(b *burst) (int64, func(func(time.Duration))) {
					b.available(100*mi + above + 60*mi)
					return rate * mi, func(wait func(time.Duration)) {
						b.grows("decoy", 60*mi)
						wait(time.Second)
						b.freeze("decoy")
						wait(quiet * time.Millisecond)
					}
				})
			}
		}
	}
}

// A pod grows while a process outside of pods grows faster, so that the pod accounts for less than half of what is used
// up. The decision comes at the crossing all the same: it is known that the pod grows as before.
func TestPodThatGrowsBesideTheSystem(t *testing.T) {
	for _, share := range []int64{120, 300} {
		const rate, above = 100, 200
		late := inPhases(t, 3, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, above*mi, 0, "hog")
			b.config.Memory = b.pricedKernel()
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(rest)
				b.grows("hog", rate*mi)
				used := int64(0)
				for used < (above+100/memorywatch.PostponeShare)*mi {
					wait(time.Millisecond)
					b.mu.Lock()
					b.system += rate * mi / 1000 * share / 100
					used = b.used() + b.system
					b.mu.Unlock()
					used -= b.capacity - (100+above)*mi
				}
				right = len(b.fencer.victims()) > 0
			})
			return right
		})
		if late > 0 {
			t.Errorf("the system grows by %d %% of the pod: in %d of 3 phases the decision is late", share, late)
		}
	}
}

// Pods grow fast, and stop. Moments later, just above the threshold, another one begins to grow.
func TestPodsThatHaveStoppedBeforeAnotherBegins(t *testing.T) {
	for _, decoys := range []int64{1, 3} {
		for _, above := range []int64{mi / 4, 3 * mi} {
			for _, quiet := range []time.Duration{150, 400} {
				what := fmt.Sprintf("%d pods, quiet for %v, %d KiB above", decoys, quiet*time.Millisecond, above>>10)
				othersThanHog(t, what, 4, func(b *burst) (int64, func(func(time.Duration))) {
					names := []string{"decoy", "small-00", "small-01"}[:decoys]
					b.available(100*mi + above + decoys*200*mi)
					return 100 * mi, func(wait func(time.Duration)) {
						for _, name := range names {
							b.grows(name, 400*mi)
						}
						wait(time.Second / 2)
						for _, name := range names {
							b.freeze(name)
						}
						wait(quiet * time.Millisecond)
					}
				})
			}
		}
	}
}

// growsWhileRead is a kernel of a node where the system grows while pods are read for a decision, once.
type growsWhileRead struct {
	priced
	grow func()
}

func (k *growsWhileRead) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	if uids != nil {
		<-time.After(20 * time.Millisecond)
		k.mu.Lock()
		if k.grow != nil {
			k.grow()
			k.grow = nil
		}
		k.mu.Unlock()
	}
	return k.priced.ReadPods(how, uids)
}

// One pod grows as fast as another one shrinks, and a process outside of pods crosses the threshold, and grows while
// the pods are read. That is no growth of the pod: it is evicted as the largest, without a fence.
func TestSystemThatGrowsWhilePodsAreRead(t *testing.T) {
	for _, grown := range []int64{5, 40} {
		wrong := inPhases(t, 3, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, mi, 0)
			b.add("hog", 5*mi, priority(1000))
			b.add("low", 300*mi)
			b.add("other", 2000*mi, priority(1000), memoryRequest(4*gi))
			b.available(101 * mi)
			k := &growsWhileRead{priced: *b.pricedKernel()}
			b.config.Memory, b.killTakes = k, time.Hour
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(rest)
				b.grows("hog", 100*mi)
				b.grows("other", -100*mi)
				wait(2500 * time.Millisecond)
				k.mu.Lock()
				k.grow = func() { b.system += grown * mi }
				b.system += 3 * mi / 2
				k.mu.Unlock()
				wait(500 * time.Millisecond)
				v := b.fencer.victims()
				right = len(v) == 1 && !v[0].fenced
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("by %d MiB: in %d of 3 phases a pod is fenced, or there is another victim", grown, wrong)
		}
	}
}

// A pod that uses huge pages begins to grow just above the threshold, after another one has stopped. A page may be
// added between the reads of the node and of the pod.
func TestHugePageBetweenTheCountersAndTheLook(t *testing.T) {
	for _, above := range []int64{256 << 10, mi} {
		for _, rate := range []int64{60, 70, 100} {
			what := fmt.Sprintf("%d KiB above, %d MiB/s", above>>10, rate)
			othersThanHog(t, what, 30, func(b *burst) (int64, func(func(time.Duration))) {
				b.pods["hog"].step = hugePage
				b.available(100*mi + above + 30*mi)
				return rate * mi, func(wait func(time.Duration)) {
					b.grows("decoy", 60*mi)
					wait(time.Second / 2)
					b.freeze("decoy")
					wait(1500 * time.Millisecond)
				}
			})
		}
	}
}

// A pod grows fast, and stops; moments later, just above the threshold, another one begins to grow by huge pages. The
// first of these says nothing about how fast memory is used up: the next one is some time away, and shows who grows.
func TestHugePagesAfterAFastPodHasStopped(t *testing.T) {
	for _, before := range []int64{200, 800} {
		for _, quiet := range []time.Duration{13, 40, 80} {
			for _, above := range []int64{1, 3, 5} {
				for _, rate := range []int64{100, 200, 400} {
					phase := int64(0)
					what := fmt.Sprintf("%d MiB/s before, quiet for %v, %d MiB above, %d MiB/s",
						before, quiet*time.Millisecond, above, rate)
					othersThanHog(t, what, 3, func(b *burst) (int64, func(func(time.Duration))) {
						phase++
						b.pods["hog"].step = hugePage
						b.available(100*mi + above*mi + before*mi/2 + phase*20<<10)
						return rate * mi, func(wait func(time.Duration)) {
							b.grows("decoy", before*mi)
							wait(time.Second / 2)
							b.freeze("decoy")
							wait(quiet * time.Millisecond)
						}
					})
				}
			}
		}
	}
}

// A small pod grows fast beside others that grow slowly: together they need more than it alone can release. The largest
// pod could release that, but too late, and it does not grow.
func TestHogBesideSlowGrowers(t *testing.T) {
	for _, c := range []struct {
		slow int
		each int64
	}{{1, 5}, {1, 20}, {20, 1}} {
		for _, rate := range []int64{100, 200, 1000} {
			othersThanHog(t, fmt.Sprintf("%d MiB/s beside %+v", rate, c), 3, func(b *burst) (int64, func(func(time.Duration))) {
				b.add("big", 8*gi)
				b.available(100*mi + 5*mi + int64(c.slow)*c.each*mi)
				return rate * mi, func(wait func(time.Duration)) {
					for i := range c.slow {
						b.grows(fmt.Sprintf("small-%02d", i), c.each*mi)
					}
					wait(time.Second)
				}
			})
		}
	}
}

// Replicas start, and use 500 MiB each within 2 s and then no more. Moments later the system or a slow leak crosses the
// threshold. One pod is evicted.
func TestReplicasHaveStartedBeforeTheCrossing(t *testing.T) {
	for _, replicas := range []int64{2, 5} {
		for _, quiet := range []time.Duration{500, 3000} {
			for _, leak := range []int64{0, 5} {
				wrong := inPhases(t, 3, 1021731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
					b := newBurst(t, mi, 0, "leak")
					for i := range replicas {
						b.add(fmt.Sprintf("new-%d", i), 5*mi, memoryRequest(20*mi))
					}
					b.config.Memory, b.killTakes = b.pricedKernel(), 1500*time.Millisecond
					b.available(105*mi + replicas*500*mi + leak*mi)
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(rest)
						for i := range replicas {
							b.grows(fmt.Sprintf("new-%d", i), 250*mi)
						}
						wait(2 * time.Second)
						for i := range replicas {
							b.freeze(fmt.Sprintf("new-%d", i))
						}
						wait(quiet * time.Millisecond)
						b.available(100*mi + leak*mi)
						b.grows("leak", leak*mi)
						if leak == 0 {
							b.crosses(mi / 2)
						}
						wait(2500 * time.Millisecond)
						right = len(b.fencer.victims()) == 1
					})
					return right
				})
				if wrong > 0 {
					t.Errorf("%d replicas, quiet for %v, leak of %d MiB/s: in %d of 3 phases more pods are evicted, or none",
						replicas, quiet*time.Millisecond, leak, wrong)
				}
			}
		}
	}
}

// A pod grows steadily, and crosses the threshold while another one takes 8 MiB within 2 ms for a request, and frees
// them, as four times a second before. The former is the victim.
func TestHogBesideRequests(t *testing.T) {
	for _, lead := range []int{2, 6, 12, 18} {
		for _, lasts := range []int{20, 200} {
			for _, rate := range []int64{100, 200, 400} {
				what := fmt.Sprintf("%d MiB/s, a request of %d ms begins %d ms before the crossing", rate, lasts, lead)
				othersThanHog(t, what, 3, func(b *burst) (int64, func(func(time.Duration))) {
					b.add("big", 8*gi)
					b.available(100*mi + rate*mi/2 + 4*mi)
					return rate * mi, func(wait func(time.Duration)) {
						b.grows("hog", rate*mi)
						for ms := range 600 {
							wait(time.Millisecond)
							in := (ms + lead) % 250
							b.mu.Lock()
							switch {
							case in < 2:
								b.pods["decoy"].memory += 4 * mi
							case in >= lasts && in < lasts+2:
								b.pods["decoy"].memory -= 4 * mi
							}
							b.mu.Unlock()
						}
						b.freeze("hog")
					}
				})
			}
		}
	}
}

// A small pod grows fast near the threshold, where others have changed by 300 KiB since they were read. They are read
// after the pod and before the node, which has less by then: that is no reason to evict another pod too.
func TestPodThatGrowsWhileOthersAreRead(t *testing.T) {
	for _, latency := range []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond} {
		for _, above := range []int64{mi, 5 * mi} {
			for _, rate := range []int64{200, 400, 800} {
				var victims []string
				wrong := inPhases(t, 6, 63*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
					b := newBurst(t, above, 0, "hog")
					k := &dear{priced: *b.pricedKernel(), wait: latency}
					k.full = 8 * time.Millisecond
					b.config.Memory, b.killTakes = k, time.Hour
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(11*time.Second + rest)
						b.mu.Lock()
						for i := range 12 {
							b.pods[fmt.Sprintf("small-%02d", i)].memory += 300 << 10
							b.system -= 300 << 10
						}
						b.mu.Unlock()
						wait(1500 * time.Millisecond)
						b.grows("hog", rate*mi)
						wait(time.Duration(float64(above+100*mi) / float64(rate*mi) * float64(time.Second)))
						got := b.fencer.victims()
						if right = len(got) == 1 && got[0].pod == "hog"; !right {
							victims = append(victims, podsOf(got))
						}
					})
					return right
				})
				if wrong > 0 {
					t.Errorf("%v for a CPU, %d MiB above, %d MiB/s: in %d of 6 phases the victims are wrong: %v", latency, above/mi,
						rate, wrong, victims)
				}
			}
		}
	}
}

// Memory is used up for a moment while a collection reads it, and again while it is read once more. The counters, read
// in between and afterwards, show that enough is available. No pod grows, and none is evicted.
func TestMemoryIsUsedUpWhileItIsRead(t *testing.T) {
	for _, times := range []int{1, 2} {
		wrong := inPhases(t, 10, 217*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, 4*mi, 0, "hog")
			k := &burdened{priced: *b.pricedKernel()}
			k.full = 5 * time.Millisecond
			b.config.Memory = k
			run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
				wait(12*time.Second + rest)
				for range 2 {
					k.mu.Lock()
					k.times = times
					k.mu.Unlock()
					m.Wake()
					wait(8 * time.Second)
				}
				right = len(b.fencer.victims()) == 0
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("%d readings: in %d of 10 phases a pod is evicted", times, wrong)
		}
	}
}
