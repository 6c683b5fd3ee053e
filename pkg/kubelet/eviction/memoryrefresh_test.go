package eviction

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// A threshold seems to be met now, and another one will be met in a second: that all pods are read for the second does
// not delay the decision about the first.
func TestNoRefreshAtTheCrossing(t *testing.T) {
	n := newNode()
	n.add("hog", gi)
	k := &kernel{node: n}
	clock := func() time.Time { return time.Unix(1000, 0) }
	w := &memoryWatcher{
		reader: k, clock: clock, costs: newReadCosts(k, clock), worst: 2 * gi, period: 10 * time.Second,
		looks: &looks{reader: k}, meetsIn: time.Second, node: scope{known: true, capacity: 32 * gi},
	}
	w.floors = []floor{{signal: snapshot.MemoryAvailable, hard: true, amount: 100 * mi, met: true}}
	w.look([2]int64{90 * mi, 0}, snapshot.MemoryCounters{}, true)
	if got := k.read(); got > 0 {
		t.Errorf("%d readings of all pods in advance, while a crossing waits to be read", got)
	}
}

// noPods is a reader whose readings have no pods.
type noPods struct{ kernel }

func (k *noPods) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	r := k.kernel.ReadMemory(how)
	r.ByPod = nil
	return r
}

// All pods are read in advance once in baseAge at most, also if the reader finds none.
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
