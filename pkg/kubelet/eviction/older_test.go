package eviction

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// A pod is released between the beginning of a tick and the answer that it is cleaned up. Stats that were collected in
// that time, before the release, do not show it, so that no other pod is evicted because of them.
func TestReleaseWhileItIsBeingLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 20*gi)
		n.add("other", 4*gi, priority(1))
		n.available(100 * mi)
		n.uncleaned["hog"] = true
		slow := make(chan time.Duration, 1)
		c := n.config(t, hard("1Gi"))
		c.PodCleanedUp = func(uid types.UID) bool {
			select {
			case d := <-slow:
				<-time.After(d)
			default:
			}
			return n.cleanedUp(uid)
		}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(1500 * time.Millisecond)
			hang := make(chan struct{})
			n.hangWith(hang)
			m.Wake() // A collection begins.
			synctest.Wait()
			slow <- 100 * time.Millisecond
			m.Wake() // A tick begins.
			wait(30 * time.Millisecond)
			close(hang) // The collection ends.
			wait(30 * time.Millisecond)
			n.hangWith(nil)
			n.mu.Lock()
			n.uncleaned["hog"] = false
			n.mu.Unlock()
			wait(time.Minute)
			expect(t, "kills", n.killed(), []string{"hog/1"})
		})
	})
}

func (n *node) hangWith(hang chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hang = hang
}

// An overdue pod has stopped between the beginning of a tick and the answer that it has. Its memory is not free in
// stats from before that.
func TestStopWhileItIsBeingLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, no := newLedger(), func(types.UID) bool { return false }
		began := time.Now()
		l.begin(victimOf("uid"), 1, began)
		l.ended("uid", podkill.Ending{Outcome: podkill.Overdue, Err: context.DeadlineExceeded}, began)
		l.reported("uid")
		stopped := func(types.UID) bool { <-time.After(time.Second); return true }
		l.sweep(time.Now, false, lives{stopped: stopped, cleanedUp: no})
		inFlight, _ := l.view()
		expect(t, "changed", inFlight[0].Changed, began.Add(time.Second))
	})
}

// lateReader returns one reading late: while late has a duration, the next reading takes that long to be returned.
type lateReader struct {
	*kernel
	late chan time.Duration
}

func (r *lateReader) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	reading := r.kernel.ReadMemory(how)
	select {
	case d := <-r.late:
		<-time.After(d)
	default:
	}
	return reading
}

// A collection has read the memory of a pod, which then grows and is evicted before the round of that collection. What
// its end releases is known better already, and stays.
func TestStatsFromBeforeAnEvictionLeaveItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		hog := n.add("hog", gi)
		n.add("other", 4*gi, priority(1))
		n.available(5 * gi)
		n.killTakes = 200 * time.Millisecond
		reader := &lateReader{&kernel{node: n}, make(chan time.Duration, 1)}
		c := n.config(t, hard("1Gi"))
		c.Memory = reader
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(1500 * time.Millisecond)
			reader.late <- memorywatch.PostponeMost + 100*time.Millisecond
			m.Wake() // A collection begins, and reads.
			wait(50 * time.Millisecond)
			n.mu.Lock()
			hog.memory += 4*gi + gi/2
			n.mu.Unlock()
			m.Nudge() // The counters cause a round, at the latest read that may show who grows.
			wait(memorywatch.PostponeMost + 2*time.Millisecond)
			expect(t, "kills", n.killed(), []string{"hog/1"})
			before := m.last.Load().Decision.Number
			wait(100 * time.Millisecond) // The round of the collection.
			expect(t, "rounds since", m.last.Load().Decision.Number, before+1)
			inFlight, _ := m.ledger.view()
			expect(t, "expected memory", inFlight[0].Expected.Memory, snapshot.Bytes(5*gi+gi/2))
		})
	})
}
