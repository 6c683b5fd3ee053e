package eviction

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// pricedKernel is the kernel of a node where a read of the counters takes 100 µs of CPU time.
func (b *burst) pricedKernel() *priced {
	const cost = 100 * time.Microsecond
	return &priced{kernel: kernel{node: b.node}, counters: cost, usages: 2 * cost, full: 10 * cost}
}

// awaitPostponed waits until the decision about a crossing is postponed.
func awaitPostponed(t *testing.T, m *Manager, k memorywatch.ThreadClock, wait func(time.Duration)) {
	t.Helper()
	for range 400 {
		wait(time.Millisecond / 2)
		postponed := m.loop.watcher.Postpones()
		_ = k.ThreadTime() // The loop calls it before it reads again: its lock orders that after this.
		if postponed {
			return
		}
	}
	t.Fatal("no decision is postponed")
}

// useUpCredit has the next read of the counters take so much CPU time that the credit for reading is used up.
func (k *priced) useUpCredit() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reading = func() {
		k.used += (memorywatch.Credit + 50*time.Millisecond) / memorywatch.PauseShare
		k.reading = nil
	}
}

// crossAndRecede has a pod cross the threshold, and its growth end and memory be freed while the decision is postponed.
func (n *node) crossAndRecede(
	t *testing.T, m *Manager, k memorywatch.ThreadClock, pod string, free int64, wait func(time.Duration),
) {
	t.Helper()
	n.grows(pod, 400*mi)
	awaitPostponed(t, m, k, wait)
	n.freeze(pod)
	n.available(free)
}

// A crossing recedes while the decision about it is postponed: reading goes back to its pace.
func TestPaceAfterACrossingThatReceded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 3*mi, 0, "hog")
		k := b.pricedKernel()
		b.config.Memory = k
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(12 * time.Second)
			k.crossAndRecede(t, m, k, "hog", 300*mi, wait)
			wait(2 * time.Second)
			cost := func() time.Duration {
				b.mu.Lock()
				defer b.mu.Unlock()
				return k.used + time.Duration(k.counterReads)*memorywatch.WakeTime
			}
			before := cost()
			wait(time.Minute)
			if used := cost() - before; used > time.Minute/memorywatch.PauseShare {
				t.Errorf("reading took %v in a minute", used)
			}
			if got := b.fencer.victims(); len(got) > 0 {
				t.Errorf("victims %v", got)
			}
		})
	})
}

// A crossing that receded changes nothing for the next one: the pod that causes that is the victim.
func TestCrossingAfterOneThatReceded(t *testing.T) {
	for phase := range 12 {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, 3*mi, 0, "hog", "slow")
			k := b.pricedKernel()
			b.config.Memory = k
			run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
				wait(12 * time.Second)
				k.crossAndRecede(t, m, k, "hog", 300*mi, wait)
				wait(30 * time.Second)
				b.available(102 * mi)
				wait(2*time.Second + time.Duration(phase)*21731*time.Microsecond)
				b.grows("slow", 30*mi)
				wait(2*time.Second/30 + 150*time.Millisecond)
				if got := b.fencer.victims(); len(got) != 1 || got[0].pod != "slow" {
					t.Errorf("phase %d: victims %v", phase, got)
				}
			})
		})
	}
}

// The same, and a second pod begins to grow 100 ms after the first: it is fenced too.
func TestSecondHogAfterACrossingThatReceded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 3*mi, 0, "zero", "first", "second")
		k := b.pricedKernel()
		b.config.Memory = k
		b.killTakes = 20 * time.Second
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(12 * time.Second)
			k.crossAndRecede(t, m, k, "zero", 150*mi, wait)
			wait(9 * time.Second)
			b.grows("first", 400*mi)
			wait(140 * time.Millisecond)
			b.expectFenced(t, "first")
			wait(100 * time.Millisecond)
			b.grows("second", 100*mi)
			wait(850 * time.Millisecond)
			b.expectFenced(t, "first", "second")
		})
	})
}

// While a decision is postponed, the only memory threshold goes to dry run, the counters fail, or fences are switched
// off: the watcher rests.
func TestNothingToReadWhilePostponed(t *testing.T) {
	for name, event := range map[string]func(*Manager, *ticking){
		"dry run":       func(m *Manager, _ *ticking) { m.SetOptions(optionsWith(dryRunOfMemory)) },
		"counters fail": func(_ *Manager, k *ticking) { k.fail(1<<30, 1<<30) },
		"fences off": func(m *Manager, _ *ticking) {
			m.SetOptions(optionsWith(func(o *settings.Options) { o.Fence = false }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 3*mi, 0, "hog")
				k := &ticking{flaky: flaky{kernel: kernel{node: b.node}}}
				b.config.Memory = k
				run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
					wait(12 * time.Second)
					k.crossAndRecede(t, m, k, "hog", 2*gi, wait)
					event(m, k)
					wait(time.Second)
					b.mu.Lock()
					k.asked = 0
					b.mu.Unlock()
					wait(10 * time.Minute)
					b.mu.Lock()
					defer b.mu.Unlock()
					if k.asked > 6000 {
						t.Errorf("the watcher was due about %d times in ten minutes", k.asked/2)
					}
				})
			})
		})
	}
}

// off is a kernel whose counters show 3 MiB less than a reading: spare memory differs in the two.
type off struct{ priced }

func (k *off) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	c, err := k.priced.Counters(how)
	c.Node += snapshot.Bytes(3 * mi)
	return c, err
}

// The credit for reading is used up after false alarms while a decision is postponed. The decision is made, and reading
// goes back to its pace.
func TestCreditIsUsedUpWhilePostponed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 2*mi+mi/2, 0, "hog")
		k := &off{*b.pricedKernel()}
		b.config.Memory = k
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(31 * time.Second)
			b.grows("hog", 30*mi)
			awaitPostponed(t, m, k, wait)
			k.useUpCredit()
			wait(3 * time.Second) // 12.5 MiB are left.
			if len(b.fencer.victims()) == 0 {
				t.Error("no pod is evicted")
			}
			b.freeze("hog")
			wait(10 * time.Minute)
			owed := time.Duration(math.MaxInt64)
			b.mu.Lock()
			k.reading = func() { owed = m.loop.watcher.Owed() }
			b.mu.Unlock()
			wait(11 * time.Second)
			b.mu.Lock()
			defer b.mu.Unlock()
			if owed > memorywatch.Credit {
				t.Errorf("owed %v after ten minutes", owed)
			}
		})
	})
}

// A collection ends while a decision is postponed: its round waits too, since it knows no more about who grows.
func TestCollectionWhilePostponed(t *testing.T) {
	for phase := range 20 {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, mi/2, 0, "hog")
			k := b.pricedKernel()
			b.config.Memory = k
			r := &roundTimes{}
			b.config.Sinks = append(b.config.Sinks, r)
			run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
				wait(12*time.Second + time.Duration(phase)*21731*time.Microsecond)
				b.grows("hog", 30*mi)
				awaitPostponed(t, m, k, wait)
				begin := time.Now()
				m.Wake() // A collection begins.
				wait(160 * time.Millisecond)
				if got := b.fencer.victims(); len(got) != 1 || got[0].pod != "hog" {
					t.Errorf("phase %d: victims %v", phase, got)
				}
				if r.since(begin) == 0 {
					t.Errorf("phase %d: no round", phase)
				}
			})
		})
	}
}

// batched is a kernel whose counters grow by 256 KiB: each CPU charges 64 pages in advance.
type batched struct{ priced }

func inBatches(n snapshot.Bytes) snapshot.Bytes {
	const batch = snapshot.Bytes(256 << 10)
	return (n + batch - 1) / batch * batch
}

func (k *batched) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	c, err := k.priced.Counters(how)
	c.Node, c.Pods = inBatches(c.Node), inBatches(c.Pods)
	return c, err
}

func (k *batched) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	list := k.priced.PodUsages(into)
	for i := range list {
		list[i].Usage = inBatches(list[i].Usage)
	}
	return list
}

func (k *batched) ReadPod(how snapshot.Counting, uid types.UID) (snapshot.PodMemory, error) {
	r, err := k.priced.ReadPod(how, uid)
	r.Resident = inBatches(r.Resident)
	return r, err
}

// A pod begins to grow so near to the threshold, or so slowly, that it crosses it within the lag of the counters: no
// other pod is evicted.
func TestSlowBursts(t *testing.T) {
	for _, test := range []struct{ above, rate, threshold int64 }{
		{256, 30, 100}, {512, 30, 100}, {900, 30, 100}, {1200, 30, 100}, {1536, 30, 100}, {2048, 20, 100}, {3072, 20, 100},
		{512, 100, 100}, {900, 100, 100}, {512, 400, 100}, {256, 30, 400}, {900, 30, 400}, {2048, 15, 50}, {2048, 25, 50},
	} {
		for _, batches := range []bool{false, true} {
			wrong := 0
			for phase := range 12 {
				synctest.Test(t, func(t *testing.T) {
					b := newBurst(t, test.above<<10, 0, "hog")
					b.config.Memory = b.pricedKernel()
					if batches {
						b.config.Memory = &batched{*b.pricedKernel()}
					}
					b.config.Thresholds = b.node.config(t, hard(fmt.Sprintf("%dMi", test.threshold))).Thresholds
					b.available(test.threshold*mi + test.above<<10)
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(12*time.Second + time.Duration(phase)*21731*time.Microsecond)
						b.grows("hog", test.rate*mi)
						wait(time.Duration(test.above)*time.Second/1024/time.Duration(test.rate) + 160*time.Millisecond)
						if got := b.fencer.victims(); len(got) != 1 || got[0].pod != "hog" {
							wrong++
						}
					})
				})
			}
			if wrong > 0 {
				t.Errorf("%d MiB/s, %d KiB above %d MiB, in batches: %t: %d of 12 decisions were wrong", test.rate, test.above,
					test.threshold, batches, wrong)
			}
		}
	}
}

// replaced is a kernel where the first reading of a pod fails: a container was replaced since its files were opened.
type replaced struct {
	kernel
	failed bool
}

func (k *replaced) ReadPod(how snapshot.Counting, uid types.UID) (snapshot.PodMemory, error) {
	k.mu.Lock()
	first := uid == "hog" && !k.failed
	k.failed = k.failed || first
	k.mu.Unlock()
	if first {
		return snapshot.PodMemory{}, errCounters
	}
	return k.kernel.ReadPod(how, uid)
}

func TestBurstOfAPodWithAReplacedContainer(t *testing.T) {
	for _, rate := range []int64{50, 400, 1000, 2000} {
		wrong := 0
		for phase := range 12 {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 2*mi, 0, "hog")
				b.config.Memory = &replaced{kernel: kernel{node: b.node}}
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(15*time.Second + time.Duration(phase)*21731*time.Microsecond)
					b.grows("hog", rate*mi)
					wait(2*time.Second/time.Duration(rate) + 110*time.Millisecond)
					if got := b.fencer.victims(); len(got) != 1 || got[0].pod != "hog" {
						wrong++
					}
				})
			})
		}
		if wrong > 0 {
			t.Errorf("%d MiB/s: %d of 12 decisions were wrong", rate, wrong)
		}
	}
}

// Memory is used up at the worst rate on a node where reading takes long: the pod is fenced before all is used up.
func TestBurstFromRestOnASlowNode(t *testing.T) {
	for _, cost := range []time.Duration{100 * time.Microsecond, 300 * time.Microsecond, 400 * time.Microsecond} {
		for phase := range 12 {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 5*mi, 0, "hog")
				b.config.Memory = &priced{kernel: kernel{node: b.node}, counters: cost, usages: cost, full: 4 * cost}
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(12*time.Second + time.Duration(phase)*21731*time.Microsecond)
					b.grows("hog", 2000*mi)
					wait(105 * time.Second / 2000)
					if len(b.fencer.victims()) == 0 {
						t.Errorf("reads of %v, phase %d: no pod is evicted", cost, phase)
					}
				})
			})
		}
	}
}

// crosses has a process outside of pods use so much memory.
func (b *burst) crosses(amount int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.system += amount
}

// The only pod that grows pauses; meanwhile the system crosses the threshold by a little, so that the decision waits.
// The more rarely memory is read then, the longer is known who grew before.
func TestGrowerPausesWhileADecisionIsPostponed(t *testing.T) {
	for _, threshold := range []int64{50, 100} {
		for _, rate := range []int64{100, 200} {
			for _, pause := range []time.Duration{250, 350, 450} {
				what := fmt.Sprintf("threshold of %d MiB, %d MiB/s, pause of %v", threshold, rate, pause*time.Millisecond)
				othersThanHog(t, what, 3, func(b *burst) (int64, func(func(time.Duration))) {
					b.add("big", 8*gi)
					b.config.Thresholds = b.node.config(t, hard(fmt.Sprintf("%dMi", threshold))).Thresholds
					b.available(threshold*mi + mi/2 + rate*mi*3/10)
					return rate * mi, func(wait func(time.Duration)) {
						b.grows("hog", rate*mi)
						wait(300 * time.Millisecond)
						b.freeze("hog")
						wait(30 * time.Millisecond)
						b.crosses(mi)
						wait(pause * time.Millisecond)
					}
				})
			}
		}
	}
}

// A pod has stopped, and the system crosses the threshold by a little, or by half of what is left, most of which it
// frees at once. While the decision waits another pod begins to grow fast. The look that shows it first also shows that
// much is used up.
func TestPodBeginsWhileADecisionIsPostponed(t *testing.T) {
	for _, crossing := range []int64{1, 50} {
		for _, rate := range []int64{400, 1000} {
			for _, after := range []time.Duration{50, 150, 300, 400} {
				what := fmt.Sprintf("crossing by %d MiB, %d MiB/s after %v", crossing, rate, after*time.Millisecond)
				othersThanHog(t, what, 4, func(b *burst) (int64, func(func(time.Duration))) {
					b.add("big", 8*gi)
					b.available(100*mi + mi/2 + 30*mi)
					return rate * mi, func(wait func(time.Duration)) {
						b.grows("decoy", 100*mi)
						wait(300 * time.Millisecond)
						b.freeze("decoy")
						wait(30 * time.Millisecond)
						b.crosses(crossing * mi)
						wait(10 * time.Millisecond)
						if crossing > 1 {
							b.crosses(-crossing * mi * 9 / 10)
						}
						wait(after * time.Millisecond)
					}
				})
			}
		}
	}
}
