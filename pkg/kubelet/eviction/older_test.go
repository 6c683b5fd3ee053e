package eviction

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
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

// An overdue pod has stopped between the beginning of a tick and the answer that it has. Its memory is not free in stats
// from before that.
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
