package eviction

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// priced is a kernel whose reads take CPU time, as much as given.
type priced struct {
	kernel
	anyThread
	counters, usages, full time.Duration
	used                   time.Duration
	// busy: most pods have changed since they were last read, so that a reading of those takes as long as one of all.
	busy bool
}

// anyThread is a thread clock that is the same for all threads.
type anyThread struct{}

func (anyThread) LockThread()   {}
func (anyThread) UnlockThread() {}

func (k *priced) pay(d time.Duration) {
	time.Sleep(d)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used += d
}

func (k *priced) ThreadTime() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.used
}

func (k *priced) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	c, err := k.kernel.Counters(how)
	k.pay(k.counters)
	return c, err
}

func (k *priced) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	k.pay(k.full)
	return k.kernel.ReadMemory(how)
}

func (k *priced) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	usages := k.kernel.PodUsages(into)
	k.pay(k.usages)
	return usages
}

func (k *priced) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	// A reading of no pods in particular (nil) is that of the limits.
	if len(uids) == 0 {
		k.pay(k.counters / 2)
	}
	if len(uids) > 0 || (k.busy && uids != nil) {
		k.pay(k.full)
	}
	return k.kernel.ReadPods(how, uids)
}

// A pod begins to grow when few MiB are left above the threshold. Reads that follow each other within milliseconds show
// less growth than the lag of the counters: the pod is the victim, fenced unless a kill takes effect before memory is
// used up, and no other pod is.
func TestBurstThatBeginsNearTheThreshold(t *testing.T) {
	for _, test := range []struct{ above, rate int64 }{{3, 100}, {2, 90}, {2, 60}, {2, 30}, {3, 400}, {2, 1000}} {
		wrong := 0
		for phase := range 12 {
			synctest.Test(t, func(t *testing.T) {
				const cost = 100 * time.Microsecond
				b := newBurst(t, test.above*mi, 0, "hog")
				b.config.Memory = &priced{kernel: kernel{node: b.node}, counters: cost, usages: 2 * cost, full: 10 * cost}
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(12*time.Second + time.Duration(phase)*21731*time.Microsecond)
					b.grows("hog", test.rate*mi)
					wait(time.Duration(test.above)*time.Second/time.Duration(test.rate) + 60*time.Millisecond)
					if got := b.fencer.victims(); len(got) != 1 || got[0].pod != "hog" || got[0].fenced != (test.rate > 50) {
						wrong++
						t.Logf("%d MiB/s, %d MiB above the threshold, phase %d: victims %v",
							test.rate, test.above, phase, got)
					}
				})
			})
		}
		if wrong > 0 {
			t.Errorf("%d MiB/s, %d MiB above the threshold: %d of 12 decisions were wrong", test.rate, test.above, wrong)
		}
	}
}

// roundTimes are the times of rounds.
type roundTimes struct {
	mu sync.Mutex
	at []time.Time
}

func (*roundTimes) Name() string                    { return "rounds" }
func (*roundTimes) Result(context.Context, *Result) {}

func (r *roundTimes) Round(context.Context, *Round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Now())
}

// since returns how many rounds there were from a time on.
func (r *roundTimes) since(from time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.at {
		if !at.Before(from) {
			n++
		}
	}
	return n
}

// A pod stops just above the threshold, and crosses it 100 ms later. What was read before does not delay the decisions
// that follow every 250 ms while the threshold is met.
func TestRoundsWhileMetAfterAnApproach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost = 100 * time.Microsecond
		b := newBurst(t, 40*mi, 0, "first")
		b.config.Memory = &priced{kernel: kernel{node: b.node}, counters: cost, usages: 2 * cost, full: 10 * cost}
		r := &roundTimes{}
		b.config.Sinks = append(b.config.Sinks, r)
		b.killTakes = 5 * time.Second
		run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
			wait(25 * time.Second)
			b.grows("first", 100*mi)
			wait(397 * time.Millisecond)
			b.freeze("first")
			wait(100 * time.Millisecond)
			b.grows("first", 100*mi)
			wait(3 * time.Millisecond)
			crossing := time.Now()
			wait(2 * time.Second)
			if n := r.since(crossing); n < 7 {
				t.Errorf("%d rounds within 2 s of the crossing, want one every 250 ms", n)
			}
		})
	})
}

// ticking counts how often the watcher is due: each check asks for the CPU time of the thread. A check that reads
// nothing takes a few microseconds.
type ticking struct {
	flaky
	anyThread
	asked int
	used  time.Duration
}

func (k *ticking) ThreadTime() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	k.used += 2 * time.Microsecond
	return k.used
}

// The only memory threshold goes to dry run, or the counters cannot be read any more, while memory is being used up.
// The watcher has nothing to read then.
func TestWatcherWithoutThresholdsRests(t *testing.T) {
	for name, event := range map[string]func(*Manager, *ticking){
		"dry run":       func(m *Manager, _ *ticking) { m.SetOptions(optionsWith(dryRunOfMemory)) },
		"counters fail": func(_ *Manager, k *ticking) { k.fail(1<<30, 1<<30) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.add("leak", gi)
				n.available(310 * mi)
				k := &ticking{flaky: flaky{kernel: kernel{node: n}}}
				c := n.config(t, hard("100Mi"))
				c.Memory = k
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					wait(15 * time.Second)
					n.grows("leak", 100*mi)
					wait(2095 * time.Millisecond) // Half a MiB above the threshold.
					event(m, k)
					wait(10 * time.Millisecond)
					n.mu.Lock()
					n.pods["leak"].memory, n.pods["leak"].growth = gi, 0
					n.mu.Unlock()
					wait(time.Second)
					n.mu.Lock()
					k.asked = 0
					n.mu.Unlock()
					wait(10 * time.Minute)
					n.mu.Lock()
					defer n.mu.Unlock()
					if k.asked > 6000 {
						t.Errorf("the watcher was due about %d times in ten minutes", k.asked/2)
					}
				})
			})
		})
	}
}

// lookedAt counts how often the counters of all pods were read.
type lookedAt struct {
	kernel
	looks int
}

func (k *lookedAt) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	k.mu.Lock()
	k.looks++
	k.mu.Unlock()
	return k.kernel.PodUsages(into)
}

// Little memory is left, and nothing is used up: the counters of the node are read many times a second, those of single
// pods twice.
func TestPodsAreSeldomReadAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 60*mi, 0, "hog")
		k := &lookedAt{kernel: kernel{node: b.node}}
		b.config.Memory = k
		run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
			wait(15 * time.Second)
			count := func() (reads, looks int) {
				b.mu.Lock()
				defer b.mu.Unlock()
				return k.counterReads, k.looks
			}
			reads, looks := count()
			wait(10 * time.Second)
			readsAfter, looksAfter := count()
			if readsAfter-reads < 300 || looksAfter-looks < 15 || looksAfter-looks > 20 {
				t.Errorf("%d reads and %d looks at pods in 10 s", readsAfter-reads, looksAfter-looks)
			}
		})
	})
}

// readAt records when all pods were read.
type readAt struct {
	kernel
	all []time.Time
}

func (k *readAt) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	k.mu.Lock()
	k.all = append(k.all, time.Now())
	k.mu.Unlock()
	return k.kernel.ReadMemory(how)
}

// A pod begins to grow on a node that has plenty of memory, so that pods were not read before. They are read while it
// grows, and not at the crossing, when that would delay the decision.
func TestPodsAreReadBeforeTheCrossing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 18*gi, 0, "hog")
		k := &readAt{kernel: kernel{node: b.node}}
		b.config.Memory = k
		run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
			wait(20500 * time.Millisecond) // The stats are collected at 20 and at 30 s.
			begin := time.Now()
			const crossing = 9 * time.Second
			b.grows("hog", 2*gi)
			wait(crossing + 30*time.Millisecond)
			b.expectFenced(t, "hog")
			b.mu.Lock()
			defer b.mu.Unlock()
			var times []time.Duration
			for _, at := range k.all {
				if after := at.Sub(begin); after > 0 {
					times = append(times, after)
				}
			}
			if len(times) == 0 || times[len(times)-1] > crossing-100*time.Millisecond {
				t.Errorf("all pods were read after %v, want that once before %v", times, crossing-100*time.Millisecond)
			}
		})
	})
}

// Thresholds are converted to amounts again just before one is crossed. No pod is read for that, and the decision is
// not delayed.
func TestThresholdsAreArmedJustBeforeACrossing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 200*mi, 0, "hog")
		k := b.pricedKernel()
		k.full = 40 * time.Millisecond
		b.config.Memory = k
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(15 * time.Second)
			b.mu.Lock()
			armed := false
			k.reading = func() { // In the loop, while the node is locked.
				if left := k.capacity - k.system - k.kernel.used(); !armed && left < 115*mi {
					armed = true
					m.loop.watcher.Rearm()
				}
			}
			b.mu.Unlock()
			b.grows("hog", 1000*mi)
			wait(220 * time.Millisecond)
			if !armed {
				t.Fatal("nothing was armed again")
			}
			b.expectFenced(t, "hog")
		})
	})
}

// noPods is a reader whose readings have no pods.
type noPods struct{ kernel }

func (k *noPods) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	r := k.kernel.ReadMemory(how)
	r.ByPod = nil
	return r
}

// All pods are read in advance once in 15 s at most, also if the reader finds none.
func TestRefreshOfAReaderWithoutPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 600*mi, 0, "hog")
		k := &noPods{kernel: kernel{node: b.node}}
		b.config.Memory = k
		run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
			wait(12 * time.Second)
			before := k.read()
			b.grows("hog", 20*mi)
			wait(7 * time.Second)
			if got := k.read() - before; got > 3 {
				t.Errorf("%d readings of all pods in 7 s", got)
			}
		})
	})
}
