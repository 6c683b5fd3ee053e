package eviction

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// turnstile is a source of stats that takes a second, and records whether two calls were under way at a time.
type turnstile struct {
	*node
	inside, asked atomic.Int32
	together      atomic.Bool
}

func (s *turnstile) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	if s.inside.Add(1) > 1 {
		s.together.Store(true)
	}
	defer s.inside.Add(-1)
	s.asked.Add(1)
	<-time.After(time.Second)
	return s.node.Get(ctx, update)
}

// TestD15NotificationsOnlyWake: notifications arrive from many sides while the loop is at work. The race detector
// watches.
func TestD15NotificationsOnlyWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 20*gi)
		n.available(100 * mi)
		c := n.config(t, hard("1Gi"))
		s := &turnstile{node: n}
		c.Collector = n.collector(t, s)
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			var notifiers sync.WaitGroup
			for range 8 {
				notifiers.Go(func() {
					for range 100 {
						m.Wake()
						<-time.After(70 * time.Millisecond)
					}
				})
			}
			notifiers.Wait()
			wait(time.Minute)
			expect(t, "two collections at a time", s.together.Load(), false)
			expect(t, "collections", s.asked.Load() > 3, true)
			expect(t, "kills", n.killed(), []string{"hog/1"})
		})
	})
}
