package eviction

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

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

// firstCrossing has a pod grow, and returns the first reading for a round and what the node has available then; no
// reading if there is none within two seconds.
func firstCrossing(t *testing.T, b *burst, k *asked) (*snapshot.MemoryReading, int64) {
	t.Helper()
	w := newMemoryWatcher(k, time.Now)
	w.adopt(fencesOn())
	w.arm(b.config.Thresholds)
	w.check()
	w.use(new(k.ReadMemory(snapshot.Counting{})), time.Now())
	b.grows("hog", 100*mi)
	for begin := time.Now(); time.Since(begin) < 2*time.Second; {
		time.Sleep(time.Until(w.next))
		if r := w.check(); r != nil {
			return r, k.ReadMemory(snapshot.Counting{}).Node.Available
		}
	}
	return nil, 0
}

// A decision about a crossing reads no pod that the look before has read.
func TestCrossingReadsNoPodTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 20*mi, 0, "hog")
		k := &asked{kernel: kernel{node: b.node}}
		r, _ := firstCrossing(t, b, k)
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

// A pod releases its memory after the node was read, and before the pods are: the decision is not based on a node that
// still has it in use.
func TestReleaseWhileACrossingIsRead(t *testing.T) {
	for _, left := range []int64{60 * mi, mi / 2} {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, 20*mi, 0, "hog", "ends")
			b.pods["ends"].memory = left
			b.available(120 * mi)
			k := &asked{kernel: kernel{node: b.node}}
			k.crossed = func() { b.ends("ends") }
			r, available := firstCrossing(t, b, k)
			if r == nil {
				t.Fatal("the crossing was not found")
			}
			if k.crossed != nil {
				t.Error("nothing was released")
			}
			if got := r.Node.Available; got != available {
				t.Errorf("%d bytes are available by the reading, %d by the node", got, available)
			}
		})
	}
}
