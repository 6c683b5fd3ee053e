package memorywatch

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestMemoryUsedBetweenCountersAndReading: memory and page cache that pods have added between the counters and the
// reading is part of what they use: what is left after it is what it shows, and as much is spare as before.
func TestMemoryUsedBetweenCountersAndReading(t *testing.T) {
	for _, cache := range []bool{false, true} {
		changing := &changing{used: 10 * gi, spare: 2 * gi, by: gi, cache: cache}
		w := &Watcher{reader: changing, clock: time.Now}
		counters, err := changing.Counters(snapshot.Counting{})
		if err != nil {
			t.Fatal(err)
		}
		counters = w.readSpare(counters)
		if w.pods.spare != changing.spare {
			t.Errorf("%d MiB are spare, want %d", w.pods.spare>>20, changing.spare>>20)
		}
		want := 16*gi - changing.used + changing.spare
		if left := w.pods.left(int64(counters.Pods)); left != want {
			t.Errorf("%d MiB are left, want %d", left>>20, want>>20)
		}
	}
}

// changing is a node of 32 GiB with a cgroup of all pods of 16 GiB. Between all reads its pods use so much more, as
// page cache or not, or the kernel takes as much from one that is being torn down.
type changing struct {
	plenty
	used, spare, by int64
	cache           bool
}

func (e *changing) usage() snapshot.Bytes {
	e.used += e.by
	if e.cache {
		e.spare += e.by
	}
	return snapshot.Bytes(e.used)
}

func (e *changing) Counters(snapshot.Counting) (snapshot.MemoryCounters, error) {
	n := e.usage()
	return snapshot.MemoryCounters{Node: n, Pods: n, NodeCapacity: snapshot.Bytes(32 * gi)}, nil
}

func (e *changing) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	return e.ReadPods(how, nil)
}

func (e *changing) ReadPods(snapshot.Counting, []types.UID) snapshot.MemoryReading {
	n := e.usage()
	return snapshot.MemoryReading{
		Node:     snapshot.Observation{Available: 32*gi - int64(n) + e.spare, Capacity: 32 * gi},
		Pods:     snapshot.Observation{Available: 16*gi - int64(n) + e.spare, Capacity: 16 * gi},
		PodsUsed: n,
	}
}

// TestMemoryOfAnEndingPodIsNotSpare: what a pod has released between the counters and the reading counted as available
// from then on, so that a threshold seemed to be further away until what is spare was read again.
func TestMemoryOfAnEndingPodIsNotSpare(t *testing.T) {
	e := &changing{used: 12 * gi, by: -gi}
	w := &Watcher{reader: e, clock: time.Now}
	counters, err := e.Counters(snapshot.Counting{})
	if err != nil {
		t.Fatal(err)
	}
	w.setLimits(ReadNode(e, snapshot.Counting{}), counters)
	if w.pods.spare != 0 {
		t.Errorf("%d MiB are spare, want none", w.pods.spare>>20)
	}
	if left, want := w.pods.left(e.used), 16*gi-e.used; left != want {
		t.Errorf("%d MiB are left, want %d", left>>20, want>>20)
	}
}
