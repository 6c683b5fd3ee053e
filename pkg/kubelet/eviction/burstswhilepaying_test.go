package eviction

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// uses sets the memory of a pod.
func (b *burst) uses(name string, amount int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[name].memory = amount
}

// left returns what the node has available.
func (b *burst) left() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.capacity - b.system - b.used()
}

// usesUp lets a pod grow until all that is left is used up, and reports whether it is a victim by then.
func (b *burst) usesUp(name string, rate int64, wait func(time.Duration)) bool {
	left := b.left()
	b.grows(name, rate*mi)
	wait(time.Duration(float64(left) / float64(rate*mi) * float64(time.Second)))
	return slices.ContainsFunc(b.fencer.victims(), func(v fencedPod) bool { return v.pod == name })
}

// A slow hog crosses the threshold, and the decision about it is postponed, with pauses that grow. A burst that begins
// meanwhile is found before all is used up.
func TestBurstWhileADecisionIsPostponed(t *testing.T) {
	const threshold = 50
	for _, slow := range []int64{mi / 2, 3 * mi / 2} {
		for _, rate := range []int64{100, 1000} {
			late := 0
			for after := 100 * time.Millisecond; after <= 450*time.Millisecond; after += 70 * time.Millisecond {
				late += inPhases(t, 4, 7300*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
					b := newBurst(t, mi/4, 0, "slow", "burst")
					b.config.Memory = b.pricedKernel()
					b.config.Thresholds = b.node.config(t, hard("50Mi")).Thresholds
					b.available(threshold*mi + mi/4)
					b.killTakes = 20 * time.Second
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(3*time.Second + rest%time.Second)
						b.grows("slow", slow)
						wait(time.Duration(mi/4) * time.Second / time.Duration(slow)) // The threshold is met.
						wait(after)
						right = b.usesUp("burst", rate, wait)
					})
					return right
				})
			}
			if late > 0 {
				t.Errorf("slow hog %d KiB/s, burst %d MiB/s: %d bursts use up all before they are found", slow>>10, rate, late)
			}
		}
	}
}

// shortLived is a busy node where a function is called once, with the node locked, when pods begin to be read.
type shortLived struct {
	priced
	then func()
}

func (k *shortLived) call(then func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.then = then
}

func (k *shortLived) called() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.then == nil
}

func (k *shortLived) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.then != nil {
		k.then()
		k.then = nil
	}
}

func (k *shortLived) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	k.begin()
	return k.priced.ReadMemory(how)
}

func (k *shortLived) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	if uids != nil {
		k.begin()
		if len(uids) == 0 {
			k.pay(k.full)
		}
	}
	return k.priced.ReadPods(how, uids)
}

// Processes of a pod use up nearly all memory for a moment, some times, and have ended before a reading confirms it.
// Then a pod grows: the decision comes before all is used up.
func TestBurstAfterMomentsWithoutMemory(t *testing.T) {
	for _, rate := range []int64{50, 200, 400} {
		late := inPhases(t, 8, 2417*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, 2*mi, 0, "hog", "short")
			k := &shortLived{priced: *b.pricedKernel()}
			k.full = 40 * time.Millisecond
			b.config.Memory = k
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(20*time.Second + rest)
				for range 3 {
					k.call(func() { b.pods["short"].memory = 5 * mi })
					b.uses("short", 104*mi)
					for range 100 {
						if wait(time.Millisecond); k.called() {
							break
						}
					}
					b.uses("short", 5*mi)
					k.call(nil)
					wait(300 * time.Millisecond)
				}
				right = b.usesUp("hog", rate, wait)
			})
			return right
		})
		if late > 0 {
			t.Errorf("%d MiB/s: in %d of 8 scenes all memory is used up before a decision", rate, late)
		}
	}
}

// A hard threshold stays met after a slow hog has used up nearly all and some memory was freed. Another pod begins to
// grow: it is found before it has used up what is left.
func TestSecondHogAfterSomeMemoryWasFreed(t *testing.T) {
	for _, rate := range []int64{50, 100, 200} {
		for _, freed := range []int64{40, 60} {
			late := inPhases(t, 6, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
				b := newBurst(t, 2*mi, 0, "first", "second")
				k := b.pricedKernel()
				k.busy = true
				k.usages, k.full = time.Millisecond/2, 40*time.Millisecond
				b.config.Memory = k
				b.killTakes = time.Minute
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(3*time.Second + rest)
					b.grows("first", 20*mi)
					for b.left() > 2*mi {
						wait(time.Millisecond)
					}
					b.freeze("first")
					b.available(freed * mi)
					wait(300 * time.Millisecond)
					right = b.usesUp("second", rate, wait)
				})
				return right
			})
			if late > 0 {
				t.Errorf("%d MiB/s, %d MiB freed: %d of 6 decisions are late", rate, freed, late)
			}
		}
	}
}

// False alarms have used up the credit, then the round of a collection finds a hard threshold met. A pod that grows is
// found before all is used up.
func TestHogAfterARoundOfACollection(t *testing.T) {
	for _, rate := range []int64{100, 400} {
		reached := 0
		late := inPhases(t, 6, 2417*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, 2*mi, 0, "hog")
			k := &doubtful{off: off{*b.pricedKernel()}, light: true}
			k.busy = true
			k.full = 30 * time.Millisecond
			b.config.Memory = k
			run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
				wait(30*time.Second + rest)
				k.burden()
				m.Wake()
				met := false
				for range 1500 {
					wait(time.Millisecond)
					if met = m.last.Load().Decision.Condition(v1.NodeMemoryPressure).HardMet; met {
						break
					}
				}
				if met {
					reached++
				}
				right = b.usesUp("hog", rate, wait)
			})
			return right
		})
		if late > 0 || reached == 0 {
			t.Errorf("%d MiB/s: in %d of 6 scenes, %d with such a round, all is used up before a decision", rate, late, reached)
		}
	}
}

// mostShare is the limit of a core's share that reading may take, with waking up, and some tolerance.
const mostShare = 0.025

// softAt100 are thresholds of which the soft one is near, so that nothing is evicted.
func softAt100(t *testing.T, b *burst) []policy.Threshold {
	t.Helper()
	return b.node.config(t, settings.ThresholdConfig{
		Hard:             map[string]string{"memory.available": "50Mi"},
		Soft:             map[string]string{"memory.available": "100Mi"},
		SoftGracePeriods: map[string]string{"memory.available": "10h"},
	}).Thresholds
}

// shareOf returns which share of a core reading takes while play waits for some time, waking up included.
func shareOf(k *priced, play func()) float64 {
	begin, before := time.Now(), k.cost()
	play()
	return (k.cost() - before).Seconds() / time.Since(begin).Seconds()
}

// cost is the CPU time of all reads so far, with that of waking up for those of the counters.
func (k *priced) cost() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.used + time.Duration(k.counterReads)*memorywatch.WakeTime
}

// Each collection shows a crossing of the soft threshold that readings refute. Reading takes its share, however often
// collections come.
func TestCostOfAwaitedReads(t *testing.T) {
	for _, period := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, 2*mi, 0, "hog")
			k := &doubtful{off: off{*b.pricedKernel()}, light: true}
			k.counters, k.usages, k.full = 200*time.Microsecond, time.Millisecond, 2*time.Millisecond
			b.config.Memory = k
			b.config.Options.MonitoringPeriod = period
			b.config.Thresholds = softAt100(t, b)
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				b.grows("hog", 1<<10)
				wait(2 * time.Minute)
				k.burden()
				if share := shareOf(&k.priced, func() { wait(2 * time.Minute) }); share > mostShare {
					t.Errorf("a collection every %v: %.1f %% of a core", period, 100*share)
				}
			})
		})
	}
}

// Memory hovers about a soft threshold, and readings confirm each crossing. They take their share.
func TestCostOfHoveringAboutASoftThreshold(t *testing.T) {
	for _, half := range []time.Duration{20, 50, 100, 400} {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, mi/4, 0, "hog")
			k := b.pricedKernel()
			k.busy = true
			k.full = 20 * time.Millisecond
			b.config.Memory = k
			b.config.Thresholds = softAt100(t, b)
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(20 * time.Second)
				share := shareOf(k, func() {
					for begin := time.Now(); time.Since(begin) < time.Minute; {
						b.available(100*mi - mi/4)
						wait(half * time.Millisecond)
						b.available(100*mi + mi/4)
						wait(half * time.Millisecond)
					}
				})
				if share > mostShare {
					t.Errorf("%v below and %v above: %.1f %% of a core", half*time.Millisecond, half*time.Millisecond, 100*share)
				}
			})
		})
	}
}
