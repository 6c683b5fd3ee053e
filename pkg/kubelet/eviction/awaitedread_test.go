package eviction

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// A pod uses up memory while the manager starts, and a threshold is met by then or soon. One look shows no growth, and
// the second, 2 ms later, often none either, since counters advance by 64 pages: the first round waits for one that
// does, so that the pod that grows is the victim, not the largest one.
func TestFirstRoundAfterTheStart(t *testing.T) {
	for _, rate := range []int64{25, 50, 100, 400} {
		for _, above := range []int64{-3 * mi, -mi, mi} {
			wrong := inPhases(t, 8, 5848*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
				b := newBurst(t, above, 0, "hog")
				b.config.Memory = &batched{*b.pricedKernel()}
				b.grows("hog", rate*mi)
				time.Sleep(rest % time.Second)
				right := false
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(200 * time.Millisecond)
					got := b.fencer.victims()
					right = len(got) > 0 && got[0].pod == "hog"
				})
				return right
			})
			if wrong > 0 {
				t.Errorf("%d MiB/s, %d MiB above the threshold: %d of 8 first rounds are wrong", rate, above/mi, wrong)
			}
		}
	}
}

// A kernel whose looks are costly raises false alarms, and the credit for reading is used up, or nearly. A crossing is
// read all the same once the decision about it is postponed.
func TestFalseAlarmsDelayNoDecisionForever(t *testing.T) {
	for _, test := range []struct {
		cost, period, most time.Duration
		rate               int64
	}{
		{20 * time.Millisecond, 10 * time.Second, 2 * time.Second, 20},
		{20 * time.Millisecond, 5 * time.Minute, 5 * time.Second, 20},
		{5 * time.Millisecond, 5 * time.Minute, 30 * time.Second, 1},
	} {
		late := inPhases(t, 8, 10*time.Second, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, 2*mi, 0, "hog")
			k := &off{*b.pricedKernel()}
			k.counters, k.usages, k.full = 200*time.Microsecond, test.cost, 2*test.cost
			b.config.Memory = k
			b.config.Options.MonitoringPeriod = test.period
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(100*time.Second + rest)
				b.grows("hog", test.rate*mi)
				wait(2*time.Second/time.Duration(test.rate) + test.most)
				right = len(b.fencer.victims()) > 0
			})
			return right
		})
		if late > 0 {
			t.Errorf("a look takes %v, %d MiB/s: %d of 8 decisions are later than %v", test.cost, test.rate, late, test.most)
		}
	}
}

// burdened is a kernel of a node that has less available while all memory is read, the next few times, since that uses
// memory too.
type burdened struct {
	priced
	times int
}

func (k *burdened) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	k.pay(k.full)
	r := k.kernel.ReadMemory(how)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.times > 0 {
		k.times--
		r.Node.Available -= 6 * mi
	}
	return r
}

// A collection and the reading after it show a crossing, the counters do not yet. The pod that grows is the victim.
func TestCrossingThatTheCountersDoNotShowYet(t *testing.T) {
	for _, rate := range []int64{20, 50, 100} {
		wrong := inPhases(t, 15, 4*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
			const above = 4
			b := newBurst(t, (above+60)*mi, 0, "hog", "decoy")
			k := &burdened{priced: *b.pricedKernel()}
			k.full = 5 * time.Millisecond
			b.config.Memory = k
			run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
				wait(14 * time.Second)
				b.grows("decoy", 60*mi)
				wait(time.Second)
				b.freeze("decoy")
				wait(1500 * time.Millisecond)
				b.available((100+above)*mi + rate*mi/10)
				b.grows("hog", rate*mi)
				wait(100*time.Millisecond + rest%time.Second)
				k.mu.Lock()
				k.times = 2
				k.mu.Unlock()
				m.Wake()
				wait(400 * time.Millisecond)
				got := b.fencer.victims()
				right = len(got) > 0 && got[0].pod == "hog"
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("%d MiB/s: %d of 15 decisions are wrong", rate, wrong)
		}
	}
}

// over reports whether these times are over.
func (k *burdened) over() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.times == 0
}

// A collection shows a crossing, the counters do not, and the threshold is crossed while memory is read again. The pod
// that grows is the victim, not one that has grown before.
func TestCrossingWhileMemoryIsReadAgain(t *testing.T) {
	for _, rate := range []int64{50, 100, 400} {
		wrong := inPhases(t, 15, 4*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
			const above, full = 20, 40 * time.Millisecond
			b := newBurst(t, (above+60)*mi, 0, "hog", "decoy")
			k := &burdened{priced: *b.pricedKernel()}
			k.full = full
			b.config.Memory = k
			run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
				wait(14 * time.Second)
				b.grows("decoy", 60*mi)
				wait(time.Second)
				b.freeze("decoy")
				wait(1500 * time.Millisecond)
				b.available((100 + above) * mi)
				b.grows("hog", rate*mi)
				wait(max(0, above*time.Second/time.Duration(rate)-2*full+rest%time.Second))
				k.mu.Lock()
				k.times = 1
				k.mu.Unlock()
				m.Wake()
				wait(300 * time.Millisecond)
				got := b.fencer.victims()
				right = len(got) > 0 && got[0].pod == "hog"
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("%d MiB/s: %d of 15 decisions are wrong", rate, wrong)
		}
	}
}

// A collection cannot read memory: that is no crossing for which its round waits.
func TestFailedReadingIsNoCrossing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 50*mi, 0, "hog")
		k := &flaky{kernel: kernel{node: b.node}}
		b.config.Memory = k
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(12 * time.Second)
			b.mu.Lock()
			k.counters, k.readings = 0, 1
			before := k.kernel.readings
			held := false
			k.reading = func() { held = held || m.loop.roundWaits }
			b.mu.Unlock()
			m.Wake()
			wait(5 * time.Millisecond)
			b.mu.Lock()
			defer b.mu.Unlock()
			if held || k.kernel.readings > before {
				t.Errorf("held %t, %d more readings of all pods", held, k.kernel.readings-before)
			}
		})
	})
}

// swapCounts is a kernel of a node that has 1 GiB more available if swap counts.
type swapCounts struct{ priced }

func (k *swapCounts) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	c, err := k.priced.Counters(how)
	if how.Swap {
		c.Node -= snapshot.Bytes(gi)
	}
	return c, err
}

func (k *swapCounts) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	return more(how, k.priced.ReadMemory(how))
}

func (k *swapCounts) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	return more(how, k.priced.ReadPods(how, uids))
}

func more(how snapshot.Counting, r snapshot.MemoryReading) snapshot.MemoryReading {
	if how.Swap {
		r.Node.Available += gi
	}
	return r
}

// Options change while the round of a collection waits, or before the collection ends. By the new ones no threshold is
// met, so that no pod is evicted; and the collection that they cause is made.
func TestOptionsChangeWhileARoundWaits(t *testing.T) {
	for _, fence := range []bool{true, false} {
		wrong := inPhases(t, 20, 217*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, mi/2, 0, "hog")
			k := &swapCounts{*b.pricedKernel()}
			b.config.Memory = k
			p := &paced{node: b.node}
			b.config.Collector = b.collector(t, p)
			run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
				wait(rest)
				b.grows("hog", 30*mi)
				awaitPostponed(t, m, k, wait)
				m.Wake()
				wait(time.Millisecond)
				calls := p.calls()
				o := *fencesOn()
				o.CountSwap, o.Fence = true, fence
				m.SetOptions(o)
				wait(2 * time.Second)
				right = len(b.fencer.victims()) == 0 && p.calls() > calls
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("fences %t: %d of 20 are wrong", fence, wrong)
		}
	}
}

// swapCountsBurdened is swapCounts where a collection finds less, and a function is called after each reading.
type swapCountsBurdened struct {
	burdened
	after func()
}

func (k *swapCountsBurdened) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	return (&swapCounts{k.priced}).Counters(how)
}

func (k *swapCountsBurdened) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	r := more(how, k.burdened.ReadMemory(how))
	if k.after != nil {
		k.after()
	}
	return r
}

func (k *swapCountsBurdened) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	return more(how, k.burdened.ReadPods(how, uids))
}

// Options change while memory is read again, which shows a crossing too. By the new ones no threshold is met.
func TestOptionsChangeWhileMemoryIsReadAgain(t *testing.T) {
	reached := 0
	wrong := inPhases(t, 15, 4*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
		const above, rate, full = 20, 100, 40 * time.Millisecond
		b := newBurst(t, above*mi, 0, "hog")
		k := &swapCountsBurdened{burdened: burdened{priced: *b.pricedKernel()}}
		k.full = full
		b.config.Memory = k
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(12500 * time.Millisecond)
			b.available((100 + above) * mi)
			b.grows("hog", rate*mi)
			wait(above*time.Second/rate - 2*full + rest%time.Second)
			set := false
			k.mu.Lock()
			k.times = 1
			k.mu.Unlock()
			k.after = func() {
				if !set && m.loop.reread && !m.loop.collecting.underWay() {
					set = true
					o := *fencesOn()
					o.CountSwap = true
					m.SetOptions(o)
				}
			}
			m.Wake()
			wait(time.Second)
			if set {
				reached++
			}
			right = !set || len(b.fencer.victims()) == 0
		})
		return right
	})
	if wrong > 0 || reached == 0 {
		t.Errorf("%d of %d decisions are wrong", wrong, reached)
	}
}

// doubtful is a kernel whose counters show 3 MiB less than is available, and that has 3 MiB less while all pods are
// read: collections show a crossing, and readings after a look at the counters do not.
type doubtful struct {
	off
	light bool
}

func (k *doubtful) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	k.pay(k.full)
	r := k.kernel.ReadMemory(how)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.light {
		r.Node.Available -= 3 * mi
	}
	return r
}

// burden has reading all pods use memory from now on.
func (k *doubtful) burden() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.light = false
}

// Collections show a crossing that readings do not confirm. The round of a collection is made all the same, and no
// other collection begins before.
func TestRoundOfACollectionThatIsContradicted(t *testing.T) {
	for _, full := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, 2*mi, 0, "hog")
			k := &doubtful{off: off{*b.pricedKernel()}, light: true}
			k.full = full
			b.config.Memory = k
			p := &paced{node: b.node}
			b.config.Collector = b.collector(t, p)
			r := &roundTimes{}
			b.config.Sinks = append(b.config.Sinks, r)
			run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
				b.grows("hog", 10<<10)
				wait(12500 * time.Millisecond)
				k.burden()
				begin, calls := time.Now(), p.calls()
				m.Wake()
				wait(20 * time.Second)
				if r.since(begin) == 0 || p.calls()-calls > 5 {
					t.Errorf("a reading takes %v: %d rounds, %d collections", full, r.since(begin), p.calls()-calls)
				}
			})
		})
	}
}

// The same while the runtime hangs, so that local stats are used.
func TestRoundOfALocalCollectionThatIsContradicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 2*mi, 0, "hog")
		k := &doubtful{off: off{*b.pricedKernel()}, light: true}
		k.full = 5 * time.Millisecond
		b.config.Memory = k
		r := &roundTimes{}
		b.config.Sinks = append(b.config.Sinks, r)
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			b.grows("hog", 10<<10)
			wait(12 * time.Second)
			b.mu.Lock()
			b.hang = make(chan struct{})
			defer close(b.hang)
			b.mu.Unlock()
			m.Wake()
			wait(30 * time.Second)
			k.burden()
			begin := time.Now()
			wait(50 * time.Second)
			if r.since(begin) == 0 {
				t.Error("no round in 50 s")
			}
		})
	})
}

// Each collection shows a crossing of the soft threshold that readings refute. What was read too much is not owed for
// ever, and a crossing of the hard threshold is not refused for it.
func TestFalseAlarmsAboutASoftThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 2*mi, 0, "hog")
		k := &doubtful{off: off{*b.pricedKernel()}, light: true}
		k.counters, k.usages, k.full = 200*time.Microsecond, time.Millisecond, 2*time.Millisecond
		b.config.Memory = k
		b.config.Thresholds = b.node.config(t, settings.ThresholdConfig{
			Hard:             map[string]string{"memory.available": "50Mi"},
			Soft:             map[string]string{"memory.available": "100Mi"},
			SoftGracePeriods: map[string]string{"memory.available": "10h"},
		}).Thresholds
		p := &paced{node: b.node}
		b.config.Collector = b.collector(t, p)
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			b.grows("hog", 1<<10)
			wait(4 * time.Minute)
			k.burden()
			used, calls := k.ThreadTime(), p.calls()
			wait(8 * time.Minute)
			owed := m.loop.watcher.Owed()
			share := (k.ThreadTime() - used).Seconds() / (8 * time.Minute).Seconds()
			if p.calls()-calls > 60 || owed > memorywatch.Debt || share > 0.025 {
				t.Errorf("%d collections, %.1f %% of a core, owed %v", p.calls()-calls, 100*share, owed)
			}
			begin := time.Now()
			b.grows("hog", 20*mi)
			wait(3500 * time.Millisecond) // The hard threshold is met after 2.5 s.
			if v := b.fencer.victims(); len(v) == 0 || v[0].pod != "hog" {
				t.Errorf("%v after growth has begun the victims are %v", time.Since(begin), v)
			}
		})
	})
}

// Fences are switched on and swap begins to count. The last collection, which counted without swap, is not completed by
// readings of single pods.
func TestCollectionOfAnotherCountingIsNoBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 50*mi, 0, "hog")
		k := &swapCounts{*b.pricedKernel()}
		b.config.Memory = k
		b.config.Options = new(optionsWith(func(o *settings.Options) { o.Fence = false }))
		b.config.Collector = b.collector(t, &paced{node: b.node, takes: 3 * time.Second})
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(14 * time.Second)
			n := 0
			b.mu.Lock()
			k.reading = func() {
				if w := m.loop.watcher; w.Completes() && m.loop.last.counting != w.Counting() {
					n++
				}
			}
			b.mu.Unlock()
			o := *fencesOn()
			o.CountSwap = true
			m.SetOptions(o)
			wait(10 * time.Second)
			if n > 0 {
				t.Errorf("%d reads with a base that was counted in another way", n)
			}
		})
	})
}

// A collection and the reading after it show a crossing that the counters do not, and while the round waits once more
// much memory is freed. No pod is evicted for what was read before.
func TestMemoryIsFreedWhileARoundWaits(t *testing.T) {
	for _, after := range []time.Duration{0, 50, 200, 400} {
		reached := 0
		wrong := inPhases(t, 6, 4*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, 4*mi, 0, "hog")
			k := &burdened{priced: *b.pricedKernel()}
			k.full = 5 * time.Millisecond
			b.config.Memory = k
			run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
				wait(16 * time.Second)
				b.grows("hog", mi)
				wait(500*time.Millisecond + rest%time.Second)
				k.mu.Lock()
				k.times = 2
				k.mu.Unlock()
				m.Wake()
				for range 1500 {
					if wait(time.Millisecond); k.over() { // Memory was read again.
						reached++
						break
					}
				}
				wait(after * time.Millisecond)
				b.available(3 * gi)
				wait(time.Second)
				right = len(b.fencer.victims()) == 0
			})
			return right
		})
		if wrong > 0 || reached == 0 {
			t.Errorf("%v later: in %d of %d scenes a pod is evicted although 3 GiB are available", after*time.Millisecond, wrong,
				reached)
		}
	}
}
