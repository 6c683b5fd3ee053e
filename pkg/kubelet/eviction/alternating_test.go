package eviction

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// billed is a kernel that sums up what the memory watcher pays: collections are read by other threads.
type billed struct {
	*priced
	watching atomic.Bool
	sum      atomic.Int64
}

func (k *billed) LockThread()   { k.watching.Store(true) }
func (k *billed) UnlockThread() { k.watching.Store(false) }

// paid returns what the watcher has paid so far.
func (k *billed) paid() time.Duration { return time.Duration(k.sum.Load()) }

func (k *billed) bill(d time.Duration) {
	if k.watching.Load() {
		k.pay(d)
		k.sum.Add(int64(d))
	}
}

func (k *billed) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	k.bill(k.counters)
	return k.kernel.Counters(how)
}

func (k *billed) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	k.bill(k.full)
	return k.kernel.ReadMemory(how)
}

func (k *billed) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	k.bill(k.usages)
	return k.kernel.PodUsages(into)
}

func (k *billed) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	if uids == nil {
		k.bill(k.counters / 2)
	} else {
		k.bill(k.full)
	}
	return k.kernel.ReadPods(how, uids)
}

// A hard threshold stays met while one pod after the other grows and shrinks again, each of which is another one that
// uses up the rest. Reading keeps to its share of a core, and exceeds it by a twentieth at most where a reading takes
// long: more may be owed then than is remembered.
func TestReadingOfAlternatingPodsKeepsItsShare(t *testing.T) {
	const lasts = 10 * time.Minute
	for _, full := range []time.Duration{40 * time.Millisecond, 100 * time.Millisecond} {
		for _, every := range []time.Duration{300 * time.Millisecond, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 50*mi, 0, "first", "pod-0", "pod-1", "pod-2", "pod-3", "pod-4", "pod-5")
				priced := b.pricedKernel()
				priced.counters, priced.usages, priced.full = 100*time.Microsecond, 700*time.Microsecond, full
				priced.busy = true
				k := &billed{priced: priced}
				b.config.Memory, b.killTakes = k, 10*time.Hour
				var spent time.Duration
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					b.meetsThreshold(wait, 20*mi)
					spent = -k.paid()
					for i, begin := 0, time.Now(); time.Since(begin) < lasts; i++ {
						name := fmt.Sprintf("pod-%d", i%6)
						b.grows(name, 100*mi)
						wait(80 * time.Millisecond)
						b.freeze(name)
						b.mu.Lock()
						b.pods[name].memory = 5 * mi
						b.mu.Unlock()
						wait(every - 80*time.Millisecond)
					}
					spent += k.paid()
				})
				if most := (lasts + memorywatch.Debt) / memorywatch.PauseShare * 21 / 20; spent > most {
					t.Errorf("a reading takes %v, another pod each %v: %v of CPU time in %v, want at most %v", full, every, spent,
						lasts, most)
				}
			})
		}
	}
}

// The same on a node of 230 busy pods, where what is left lasts for longer than a second: decisions may read all pods
// that have changed, as long as that can be paid for.
func TestReadingOfAlternatingPodsBesideBusyOnesKeepsItsShare(t *testing.T) {
	const lasts = 2 * time.Minute
	for _, rate := range []int64{22, 50} {
		for _, every := range []time.Duration{600 * time.Millisecond, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				names := []string{"first", "pod-0", "pod-1", "pod-2", "pod-3", "pod-4", "pod-5"}
				for i := range 230 {
					names = append(names, fmt.Sprintf("busy-%03d", i))
				}
				b := newBurst(t, 50*mi, 0, names...)
				k := &crowded{billed: &billed{priced: b.pricedKernel()}, each: 400 * time.Microsecond}
				k.counters, k.usages = 100*time.Microsecond, 700*time.Microsecond
				b.config.Memory, b.killTakes = k, 10*time.Hour
				var spent time.Duration
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					b.meetsThreshold(wait, 60*mi)
					spent = -k.paid()
					for i, begin := 0, time.Now(); time.Since(begin) < lasts; i++ {
						b.exchange(names[7:], i)
						name := fmt.Sprintf("pod-%d", i%6)
						b.grows(name, rate*mi)
						wait(200 * time.Millisecond)
						b.freeze(name)
						b.uses(name, 5*mi)
						wait(every - 200*time.Millisecond)
					}
					spent += k.paid()
				})
				if most := (lasts + memorywatch.Debt) / memorywatch.PauseShare * 21 / 20; spent > most {
					t.Errorf("another pod each %v, %d MiB/s: %v of CPU time in %v, want at most %v", every, rate, spent, lasts, most)
				}
			})
		}
	}
}

// The same where a process outside of pods, or a pod that cannot be evicted, uses more than half of what is left, and
// frees it, again and again. Each decision about that reads all pods. One in eight seconds is made whatever is owed.
func TestReadingWhereHalfIsUsedUpAgainAndAgainKeepsItsShare(t *testing.T) {
	const lasts = 2 * time.Minute
	for _, full := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
		for _, every := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, time.Second} {
			for _, critical := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					b := newBurst(t, 50*mi, 0, "first", "static")
					b.pods["static"].object.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
					k := &billed{priced: b.pricedKernel()}
					k.counters, k.usages, k.full = 100*time.Microsecond, 700*time.Microsecond, full
					b.config.Memory, b.killTakes = k, 10*time.Hour
					var spent time.Duration
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						b.meetsThreshold(wait, 60*mi)
						spent = -k.paid()
						for begin := time.Now(); time.Since(begin) < lasts; {
							if !critical {
								b.available(25 * mi)
								wait(every / 2)
								b.available(60 * mi)
								wait(every / 2)
								continue
							}
							b.grows("static", 400*mi)
							wait(90 * time.Millisecond)
							b.freeze("static")
							b.uses("static", 5*mi)
							wait(every - 90*time.Millisecond)
						}
						spent += k.paid()
					})
					if most := (lasts + memorywatch.Debt) / memorywatch.PauseShare * 3 / 2; spent > most {
						t.Errorf("critical %v, a reading takes %v, every %v: %v of CPU time in %v, want at most %v", critical, full,
							every, spent, lasts, most)
					}
				})
			}
		}
	}
}

// meetsThreshold has a pod grow to the threshold and stop. After that so much is left, for long enough to pay for all
// that was read until then.
func (b *burst) meetsThreshold(wait func(time.Duration), left int64) {
	wait(12 * time.Second)
	b.grows("first", 50*mi)
	wait(1100 * time.Millisecond)
	b.freeze("first")
	b.available(left)
	wait(30 * time.Second)
}

// exchange has every second pod use half a MiB more, and the others as much less; in the next turn the other way round.
func (b *burst) exchange(pods []string, turn int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, name := range pods {
		by := mi / 2 * int64(1-2*((turn+i)%2))
		b.pods[name].memory += by
		b.system -= by
	}
}
