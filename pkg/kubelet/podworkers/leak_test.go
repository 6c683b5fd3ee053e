package podworkers

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

func TestMain(m *testing.M) {
	flag.Parse()
	metrics.Register()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// podsInLeakTest is the number of pods that are created and deleted. The limit of the heap below permits the data of
// one pod, not the remains of a thousand.
const podsInLeakTest = 100_000

// Pods that are deleted leave no goroutine, no context and no memory.
func TestNoLeaksAfterManyPods(t *testing.T) {
	total := podsInLeakTest
	if testing.Short() {
		total /= 20
	}
	bubble(t, func(n *node) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		const batch = 100
		round := func(from int) {
			var pods []*v1.Pod
			for i := range batch {
				pod := newPod(fmt.Sprint(from + i))
				pods = append(pods, pod)
				n.UpdatePod(ctx, Update{UpdateType: kubetypes.SyncPodCreate, Pod: pod})
			}
			for _, pod := range pods {
				n.send(kubetypes.SyncPodKill, pod)
			}
			n.advance(3 * time.Second)
			n.SyncKnownPods(nil)
			n.queue.GetWork()
			n.script.reset()
			clear(n.script.busy)
		}
		round(0)
		goroutines, heap := runtime.NumGoroutine(), heapBytes()
		for i := batch; i < total; i += batch {
			round(i)
		}
		const ofTheRuntime = 5 // finalizers and the like
		if now := runtime.NumGoroutine(); now > goroutines+ofTheRuntime {
			t.Errorf("%d goroutines, before %d", now, goroutines)
		}
		if now := heapBytes(); now > heap+4<<20 {
			t.Errorf("heap grew from %d to %d bytes", heap, now)
		}
		if len(n.workers)+len(n.cfg.Store.UIDs())+len(n.waiters.channels) != 0 {
			t.Errorf("%d workers, %d states, %d waiters are left", len(n.workers), len(n.cfg.Store.UIDs()),
				len(n.waiters.channels))
		}
	})
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
