package eviction

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// asked is a kernel that records which pods ReadPods has read, and calls crossed with the first look below the
// threshold.
type asked struct {
	kernel
	pods    []types.UID
	crossed func()
}

func (k *asked) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	k.pods = append(k.pods, uids...)
	return k.kernel.ReadPods(how, uids)
}

func (k *asked) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	if k.crossed != nil && k.ReadMemory(snapshot.Counting{}).Node.Available < 100*mi {
		k.crossed()
		k.crossed = nil
	}
	return k.kernel.PodUsages(into)
}

// firstCrossing has a pod grow, and returns the first reading for a round; nil if there is none within two seconds.
func firstCrossing(t *testing.T, b *burst, k *asked) *snapshot.MemoryReading {
	t.Helper()
	w := memorywatch.New(k, time.Now)
	w.Adopt(fencesOn())
	w.Arm(b.config.Thresholds)
	w.Check()
	w.Use(new(k.ReadMemory(snapshot.Counting{})), time.Now())
	b.grows("hog", 100*mi)
	for begin := time.Now(); time.Since(begin) < 2*time.Second; {
		time.Sleep(time.Until(w.Next()))
		if r := w.Check(); r != nil {
			return r
		}
	}
	return nil
}

// A decision about a crossing reads no pod that the look before has read.
func TestCrossingReadsNoPodTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 20*mi, 0, "hog")
		k := &asked{kernel: kernel{node: b.node}}
		r := firstCrossing(t, b, k)
		if r == nil {
			t.Fatal("the crossing was not found")
		}
		if len(k.pods) > 0 {
			t.Errorf("read again were %v", k.pods)
		}
		if got := r.ByPod["hog"].WorkingSet.Amount; len(r.ByPod) != 22 || got < snapshot.Bytes(20*mi) {
			t.Errorf("the hog has %d bytes, of %d pods", got, len(r.ByPod))
		}
	})
}

// A node that has recovered after the look has no victim: it is read after the pods, as page cache and swap are, which
// may hide that memory was released.
func TestReleaseAfterTheLook(t *testing.T) {
	for _, cached := range []int64{0, 60} {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, 20*mi, 0, "hog", "ends")
			b.pods["ends"].memory = 60 * mi
			b.available(120 * mi)
			k := &asked{kernel: kernel{node: b.node}}
			k.crossed = func() {
				b.ends("ends")
				b.freeze("hog")
				b.mu.Lock()
				b.pods["cache"].cached += cached * mi
				b.mu.Unlock()
			}
			b.config.Memory = k
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(12 * time.Second)
				b.mu.Lock()
				b.pods["cache"].caching, b.pods["cache"].since = 20*mi, time.Now()
				b.mu.Unlock()
				b.grows("hog", 100*mi)
				wait(3 * time.Second)
				if k.crossed != nil {
					t.Error("nothing was released")
				}
				if got := b.fencer.victims(); len(got) > 0 {
					t.Errorf("%d MiB of page cache: victims %v", cached, got)
				}
			})
		})
	}
}

// A collection reads a pod before it grows, and ends after a look at what it has grown. The pod is read again at the
// crossing that another one causes.
func TestReadingFromBeforeTheLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 140*mi, 0, "burst", "leak")
		k := &kernel{node: b.node}
		w := memorywatch.New(k, time.Now)
		w.Adopt(fencesOn())
		w.Arm(b.config.Thresholds)
		w.Check()
		begun := time.Now()
		reading := k.ReadMemory(snapshot.Counting{})
		b.grows("burst", 1000*mi)
		time.Sleep(100 * time.Millisecond)
		b.freeze("burst")
		w.Check()
		w.Use(&reading, begun)
		pause := func() { time.Sleep(max(0, time.Until(w.Next()))) }
		for begin := time.Now(); time.Since(begin) < 1200*time.Millisecond; pause() {
			w.Check()
		}
		b.grows("leak", 100*mi)
		for begin := time.Now(); time.Since(begin) < 2*time.Second; pause() {
			if r := w.Check(); r != nil {
				if got := r.ByPod["burst"].WorkingSet.Amount; got < snapshot.Bytes(100*mi) {
					t.Errorf("the pod counts %d MiB, it uses 100 more than at first", got>>20)
				}
				return
			}
		}
		t.Fatal("no crossing")
	})
}

// Where each pod has changed since it was last read, a crossing after which memory is used up within a second reads
// only those that have changed most.
func TestCrossingOfABusyNodeReadsFewPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"hog"}
		for i := range 100 {
			names = append(names, fmt.Sprintf("busy-%d", i))
		}
		b := newBurst(t, 200*mi, 0, names...)
		k := &asked{kernel: kernel{node: b.node}}
		w := memorywatch.New(k, time.Now)
		w.Adopt(fencesOn())
		w.Arm(b.config.Thresholds)
		w.Check()
		w.Use(new(k.ReadMemory(snapshot.Counting{})), time.Now())
		b.mu.Lock()
		for i, name := range names[1:] {
			b.pods[name].memory += mi/2 + int64(i)<<10
		}
		b.mu.Unlock()
		b.grows("hog", 400*mi)
		for begin := time.Now(); time.Since(begin) < 2*time.Second; time.Sleep(max(0, time.Until(w.Next()))) {
			r := w.Check()
			if r == nil {
				continue
			}
			if len(k.pods) > 12 || !slices.Contains(k.pods, "busy-99") || slices.Contains(k.pods, "hog") {
				t.Errorf("read were %v", k.pods)
			}
			if r.ByPod["busy-0"] == nil || r.ByPod["hog"].WorkingSet.Amount < snapshot.Bytes(100*mi) {
				t.Errorf("%d pods, the hog has %+v", len(r.ByPod), r.ByPod["hog"])
			}
			return
		}
		t.Fatal("the crossing was not found")
	})
}
