package memorywatch

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestGrowingPageCacheIsNotSpare: page cache that pods have added between the counters and the reading is part of what
// they use, so that a threshold that the reading shows to be met is met by the counters too.
func TestGrowingPageCacheIsNotSpare(t *testing.T) {
	w := &Watcher{clock: time.Now}
	counters := snapshot.MemoryCounters{Pods: snapshot.Bytes(15 * gi)}
	r := snapshot.MemoryReading{
		Node:     snapshot.Observation{Available: 8 * gi, Capacity: 32 * gi},
		Pods:     snapshot.Observation{Available: 2 * gi, Capacity: 16 * gi},
		PodsUsed: snapshot.Bytes(15*gi + 20*mi),
	}
	w.setLimits(r, counters)
	if left := w.pods.left(int64(counters.Pods)); left != r.Pods.Available {
		t.Errorf("%d MiB are left, want %d", left>>20, r.Pods.Available>>20)
	}
}

// ending is a node of 32 GiB with a cgroup of all pods of 16 GiB. One of the pods, of 8 GiB, is being torn down by the
// kernel, which takes memory from it between all reads. Nothing is spare.
type ending struct {
	plenty
	used int64
}

func (e *ending) usage() snapshot.Bytes {
	e.used -= gi
	return snapshot.Bytes(e.used)
}

func (e *ending) Counters(snapshot.Counting) (snapshot.MemoryCounters, error) {
	n := e.usage()
	return snapshot.MemoryCounters{Node: n, Pods: n, NodeCapacity: snapshot.Bytes(32 * gi)}, nil
}

func (e *ending) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	return e.ReadPods(how, nil)
}

func (e *ending) ReadPods(snapshot.Counting, []types.UID) snapshot.MemoryReading {
	n := e.usage()
	return snapshot.MemoryReading{
		Node:     snapshot.Observation{Available: 32*gi - int64(n), Capacity: 32 * gi},
		Pods:     snapshot.Observation{Available: 16*gi - int64(n), Capacity: 16 * gi},
		PodsUsed: n,
	}
}

// TestMemoryOfAnEndingPodIsNotSpare: what a pod has released between the counters and the reading counted as available
// from then on, so that a threshold seemed to be further away until what is spare was read again.
func TestMemoryOfAnEndingPodIsNotSpare(t *testing.T) {
	e := &ending{used: 12 * gi}
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
