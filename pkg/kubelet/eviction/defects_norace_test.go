//go:build !race

package eviction

import (
	"context"
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	stock "k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/utils/clock"
)

// stockSynchronize is what stock's loop and each of its notifiers call.
//
//go:linkname stockSynchronize k8s.io/kubernetes/pkg/kubelet/eviction.(*managerImpl).synchronize
func stockSynchronize(m unsafe.Pointer, ctx context.Context, disks stock.DiskInfoProvider, pods stock.ActivePodsFunc) ([]*v1.Pod, error)

// slowSummary completes turnstile to stock's interface.
type slowSummary struct{ *turnstile }

func (s slowSummary) GetCPUAndMemoryStats(ctx context.Context) (*statsapi.Summary, error) {
	return s.Get(ctx, true)
}

// TestD15BesideStock: two rounds of stock run at a time. The race detector would end the test for that, so it is not there.
func TestD15BesideStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.available(20 * gi)
		s := &turnstile{node: n}
		w := &stockWorld{node: n}
		thresholds, err := stock.ParseThresholdConfig(nil, hard("1Gi").Hard, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		kill := func(*v1.Pod, bool, *int64, func(*v1.PodStatus)) error { return nil }
		m, _ := stock.NewManager(slowSummary{s}, stock.Config{Thresholds: thresholds}, kill, w, w, n, &v1.ObjectReference{}, clock.RealClock{}, false)
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
		expect(t, "stock, which does not show the defect any more: two rounds at a time", s.together.Load(), true)
	})
}
