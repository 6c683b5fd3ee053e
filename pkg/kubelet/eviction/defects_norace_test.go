//go:build !race

package eviction

import (
	"context"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	stock "k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/utils/clock"
)

// stockSynchronize is what stock's loop and each of its notifiers call.
//
//go:linkname stockSynchronize k8s.io/kubernetes/pkg/kubelet/eviction.(*managerImpl).synchronize
func stockSynchronize(m unsafe.Pointer, ctx context.Context, disks stock.DiskInfoProvider,
	pods stock.ActivePodsFunc) ([]*v1.Pod, error)

// meeting is a source of stats that blocks until two calls are under way, or for a minute.
type meeting struct {
	*stockWorld
	inside atomic.Int32
	both   chan struct{}
	missed atomic.Bool
}

func (s *meeting) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	if s.inside.Add(1) == 2 {
		close(s.both)
	}
	select {
	case <-s.both:
	case <-time.After(time.Minute):
		s.missed.Store(true)
	}
	return s.node.Get(ctx, update)
}

// TestD15BesideStock: two rounds of stock run at a time. The race detector would end the test for that, so it is not
// there. No bubble: its clock would stand still if stock guarded its rounds with a lock.
func TestD15BesideStock(t *testing.T) {
	n := newNode()
	n.available(20 * gi)
	s := &meeting{stockWorld: &stockWorld{node: n}, both: make(chan struct{})}
	thresholds, err := stock.ParseThresholdConfig(nil, hard("1Gi").Hard, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	kill := func(*v1.Pod, bool, *int64, func(*v1.PodStatus)) error { return nil }
	m, _ := stock.NewManager(s, stock.Config{Thresholds: thresholds}, kill, s, s, n, &v1.ObjectReference{},
		clock.RealClock{}, false)
	done := make(chan error)
	for range 2 {
		go func() {
			_, err := stockSynchronize(reflect.ValueOf(m).UnsafePointer(), context.Background(), n, n.active)
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	runtime.KeepAlive(m)
	expect(t, "stock, which does not show the defect any more: nobody else is at it", s.missed.Load(), false)
}
