package podworkers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

func TestStopEndsAllWorkers(t *testing.T) {
	bubble(t, func(n *node) {
		n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error { return untilCancelled(ctx) }
		pod, other := newPod("a"), newPod("b")
		n.start(pod)
		n.start(other)
		killed := make(chan error)
		go func() { killed <- n.kill(pod, false, nil) }()
		n.advance(3 * time.Second)
		if err := n.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := <-killed; !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
		n.script.reset()
		n.create(newPod("c"))
		n.advance(time.Minute)
		n.expectCalls()
		if known := n.SyncKnownPods(nil); len(known) != 2 {
			t.Errorf("the pods were removed: %v", known)
		}
	})
}

func TestStopReturnsWhenItsContextEnds(t *testing.T) {
	bubble(t, func(n *node) {
		release := make(chan struct{})
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			<-release
			return podsync.SyncResult{}, nil
		}
		n.start(newPod("a"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := n.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(release)
	})
}
