package eviction

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// crowded is a kernel where each pod that is read in full takes as long.
type crowded struct {
	*billed
	each time.Duration
}

func (k *crowded) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	k.bill(time.Duration(len(k.pods)) * k.each)
	return k.kernel.ReadMemory(how)
}

func (k *crowded) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	k.bill(k.counters/2 + time.Duration(len(uids))*k.each)
	return k.kernel.ReadPods(how, uids)
}

// secondHog has a pod grow to the threshold and then stop, and another one begin to grow some time later. It returns
// how much of what is left that one has used up when it is found, in percent. between is called in between.
func (b *burst) secondHog(wait func(time.Duration), phase int, first, second int64, between func()) (percent int) {
	b.grows("first", first)
	for begin := time.Now(); len(b.fencer.victims()) == 0 && time.Since(begin) < 2*time.Second; {
		wait(time.Millisecond)
	}
	b.freeze("first")
	between()
	wait(time.Duration(100+50*phase) * time.Millisecond)
	return b.found(wait, second)
}

// found has the second pod begin to grow, and returns how much of what is left it has used up when it is found.
func (b *burst) found(wait func(time.Duration), rate int64) (percent int) {
	b.mu.Lock()
	left := b.capacity - b.system - b.used()
	b.mu.Unlock()
	begin, whole := time.Now(), time.Duration(float64(left)/float64(rate)*float64(time.Second))
	b.grows("second", rate)
	for time.Since(begin) < whole && len(b.fencer.victims()) < 2 {
		wait(time.Millisecond)
	}
	return int(100 * time.Since(begin) / whole)
}

// On a node of 250 pods most have changed since the last collection when a pod crosses the threshold. So the first
// decision takes long, and more is owed for reading than crossings may cost. A second pod that begins up to half a
// second later is found when it has used up a third of what is left at most: the next decision reads few pods.
func TestSecondHogOnANodeOfManyPods(t *testing.T) {
	for _, each := range []time.Duration{150 * time.Microsecond, 400 * time.Microsecond} {
		for _, rate := range []int64{50, 100} {
			var percents []int
			late := false
			for phase := range 8 {
				synctest.Test(t, func(t *testing.T) {
					names := []string{"first", "second"}
					for i := range 230 {
						names = append(names, fmt.Sprintf("busy-%03d", i))
					}
					b := newBurst(t, 20*mi, 0, names...)
					k := &crowded{billed: &billed{priced: b.pricedKernel()}, each: each}
					k.counters, k.usages = 100*time.Microsecond, 700*time.Microsecond
					b.config.Memory, b.killTakes = k, time.Hour
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(13*time.Second + time.Duration(phase)*21731*time.Microsecond)
						b.mu.Lock()
						for _, name := range names[2:] {
							b.pods[name].memory += mi / 2
							b.system -= mi / 2
						}
						b.mu.Unlock()
						wait(3 * time.Second)
						percent := b.secondHog(wait, phase, 50*mi, rate*mi, func() {})
						percents, late = append(percents, percent), late || percent > 33
					})
				})
			}
			if late {
				t.Errorf("a pod in %v, %d MiB/s: used up when the second pod is found, in percent: %v", each, rate, percents)
			}
		}
	}
}

// A reading takes much CPU time once, and little after that: the kernel has summed up its statistics. The second pod is
// found when it has used up a third of what is left at most.
func TestSecondHogAfterOneSlowReading(t *testing.T) {
	for _, slow := range []time.Duration{20 * time.Millisecond, 60 * time.Millisecond, 95 * time.Millisecond} {
		for _, rate := range []int64{50, 100, 200} {
			var percents []int
			late := false
			for phase := range 8 {
				synctest.Test(t, func(t *testing.T) {
					b := newBurst(t, 20*mi, 0, "first", "second")
					k := b.pricedKernel()
					k.full, k.busy = slow, true
					b.config.Memory, b.killTakes = k, time.Hour
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(15*time.Second + time.Duration(phase)*21731*time.Microsecond)
						percent := b.secondHog(wait, phase, 100*mi, rate*mi, func() {
							b.mu.Lock()
							defer b.mu.Unlock()
							k.full = time.Millisecond
						})
						percents, late = append(percents, percent), late || percent > 33
					})
				})
			}
			if late {
				t.Errorf("once %v, %d MiB/s: used up when the second pod is found, in percent: %v", slow, rate, percents)
			}
		}
	}
}

// varying returns what a pod seems to use more whose counter goes up and down by 64 pages, by chance.
func varying(pod int) snapshot.Bytes {
	at := time.Now().Add(time.Duration(pod) * 7919 * time.Microsecond).UnixNano()
	x := uint64(at/int64(150*time.Millisecond))*0x9E3779B97F4A7C15 + uint64(pod)*0xBF58476D1CE4E5B9
	x ^= x >> 29
	x *= 0x94D049BB133111EB
	return 256 << 10 * snapshot.Bytes(x>>63)
}

// A hard threshold is met, about 100 MiB are left, and the counters of 60 pods at rest vary by just 64 pages. That uses
// up nothing of what may be owed for reading: a second pod that begins after some seconds is found nearly as soon as
// where they do not vary.
func TestSecondHogBesidePodsThatVary(t *testing.T) {
	const phases, pods = 40, 60
	for _, rate := range []int64{200, 400} {
		var percents []int
		sum := 0
		for phase := range phases {
			synctest.Test(t, func(t *testing.T) {
				names := []string{"first", "second"}
				for i := range pods {
					names = append(names, fmt.Sprintf("rest-%d", i))
				}
				b := newBurst(t, 20*mi, 0, names...)
				k := &noisy{priced: *b.pricedKernel(), pods: pods, more: varying, inNode: true}
				k.counters, k.usages, k.full = 300*time.Microsecond, 700*time.Microsecond, 4*time.Millisecond
				b.config.Memory, b.killTakes = k, time.Hour
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(15*time.Second + time.Duration(phase)*21731*time.Microsecond)
					b.grows("first", 100*mi)
					wait(220 * time.Millisecond)
					b.freeze("first")
					wait(3*time.Second + time.Duration(phase)*13*time.Millisecond)
					percent := b.found(wait, rate*mi)
					percents, sum = append(percents, percent), sum+percent
				})
			})
		}
		if most := int(16 * rate / 200); sum/phases > most {
			t.Errorf("%d MiB/s: used up when the second pod is found, in percent: %d on average, want %d at most: %v", rate,
				sum/phases, most, percents)
		}
	}
}

// A second hog begins, and milliseconds later another pod frees memory once: at that moment the node uses up nothing,
// so that the second hog is no victim. It is found before it has used up a third of what is left all the same.
func TestMemoryIsFreedWhenASecondHogHasBegun(t *testing.T) {
	for _, rate := range []int64{100, 200, 400} {
		for _, after := range []time.Duration{1, 3, 6, 10} { // ms
			for _, freed := range []int64{3, 12} {
				var found []string
				late := inPhases(t, 10, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
					b := newBurst(t, mi, 0, "hog", "second", "other")
					b.pods["other"].memory = (5 + freed) * mi
					b.config.Memory, b.killTakes = b.pricedKernel(), time.Hour
					b.available(102 * mi)
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(12 * time.Second)
						b.grows("hog", 100*mi)
						wait(200*time.Millisecond + (rest-12*time.Second)/3)
						left := b.left() + freed*mi
						b.grows("second", rate*mi)
						wait(after * time.Millisecond)
						b.uses("other", 5*mi)
						for b.left() > left/4 && len(b.fencer.victims()) == 1 {
							wait(time.Millisecond / 2)
						}
						percent := 100 - 100*b.left()/left
						right = podsOf(b.fencer.victims()) == "hog, second" && percent <= 33
						found = append(found, fmt.Sprintf("%s %d %%", podsOf(b.fencer.victims()), percent))
					})
					return right
				})
				if late > 0 {
					t.Errorf("%d MiB/s, %d MiB freed %d ms after: %d of 10 are late: %q", rate, freed, after, late, found)
				}
			}
		}
	}
}

// A pod grows slowly when a hog is evicted, and begins to grow fast later. It is found before it has used up a third of
// what is left, as one that was at rest is.
func TestPodThatGrowsFasterAfterTheDecision(t *testing.T) {
	for _, slow := range []int64{0, 5, 10} {
		for _, fast := range []int64{200, 400} {
			for _, after := range []time.Duration{20, 400, 2000} { // ms
				var found []string
				late := inPhases(t, 8, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
					b := newBurst(t, mi, 0, "hog", "second")
					b.config.Memory, b.killTakes = b.pricedKernel(), time.Hour
					b.available((112 + slow) * mi)
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(rest)
						b.grows("second", slow*mi)
						wait(time.Second)
						b.grows("hog", 100*mi)
						for range 1000 {
							if wait(time.Millisecond / 2); len(b.fencer.victims()) > 0 {
								break
							}
						}
						wait(after * time.Millisecond)
						first, left := podsOf(b.fencer.victims()), b.left()
						b.freeze("second")
						b.grows("second", fast*mi)
						for b.left() > left/4 && len(b.fencer.victims()) == 1 {
							wait(time.Millisecond / 2)
						}
						percent := 100 - 100*b.left()/left
						right = first == "hog" && podsOf(b.fencer.victims()) == "hog, second" && percent <= 33
						found = append(found, fmt.Sprintf("%s %d %%", podsOf(b.fencer.victims()), percent))
					})
					return right
				})
				if late > 0 {
					t.Errorf("%d, then %d MiB/s %d ms after: %d of 8 are late: %q", slow, fast, after, late, found)
				}
			}
		}
	}
}
