package podworkers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// D4: a shorter grace period takes effect during a termination. If Hasten fails, Terminate is cancelled and called
// again.
func TestShorterGraceRepeatsARunningTermination(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.advance(2 * time.Second)
		n.script.onTerminate = terminateSlowly
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 3600))
		n.advance(time.Minute)
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 7200)) // longer: no effect
		n.advance(time.Minute)
		begin := time.Now()
		if err := n.kill(pod, true, new(int64(5))); err != nil || time.Since(begin) != 5*time.Second+stopOverhead {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		n.expectCalls("sync a create", "terminate a 3600", "terminate a 5")
	})
}

// fakeHastener is a runtime that shortens the grace period of a termination in progress.
type fakeHastener struct {
	calls   []int64
	shorten chan int64
	err     error
}

func (h *fakeHastener) Hasten(_ context.Context, request podsync.TerminateRequest) error {
	h.calls = append(h.calls, *request.GracePeriod)
	if h.err != nil {
		return h.err
	}
	h.shorten <- *request.GracePeriod
	return nil
}

// terminate is a Terminate whose grace period Hasten can shorten.
func (h *fakeHastener) terminate(ctx context.Context, request podsync.TerminateRequest) error {
	grace := *request.GracePeriod
	for {
		select {
		case grace = <-h.shorten:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(grace)*time.Second + stopOverhead):
			return nil
		}
	}
}

// D4: a shorter grace period hastens the termination in progress, which is not called again.
func TestShorterGraceHastensARunningTermination(t *testing.T) {
	h := &fakeHastener{}
	bubble(t, func(n *node) {
		h.shorten = make(chan int64, 1)
		pod := newPod("a")
		n.start(pod)
		n.advance(2 * time.Second)
		n.script.onTerminate = h.terminate
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 3600))
		n.advance(time.Minute)
		for _, grace := range []int64{600, 900, 5} {
			n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: &grace, Evict: true})
			n.advance(time.Second)
		}
		n.advance(4500 * time.Millisecond)
		n.expectPhase(pod, podlifecycle.Terminated)
		n.expectCalls("sync a create", "terminate a 3600")
		if len(h.calls) != 2 || h.calls[0] != 600 || h.calls[1] != 5 {
			t.Errorf("hastened to %v", h.calls)
		}
		if state := n.state(pod); !state.Termination.Hastened || state.Evicted() {
			t.Errorf("%+v", state.Termination)
		}
	}, func(c *Config) { c.Hastener = h })
}

// D26: the eviction of a terminating pod hastens the termination. The pod does not count as evicted, its status is not
// amended, and no waiters are left after their time is over.
func TestEvictionsOfATerminatingPodLeaveNoWaiters(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.advance(2 * time.Second)
		amended := false
		n.script.onTerminate = func(ctx context.Context, request podsync.TerminateRequest) error {
			amended = amended || request.Disruption != nil
			return untilCancelled(ctx)
		}
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 30))
		synctest.Wait()
		for range 1000 {
			err := n.stopPod(context.Background(), podkill.Request{
				Pod: pod, Evict: true, GracePeriodSeconds: new(int64(0)), Disruption: &podkill.Disruption{Reason: "Evicted"},
			}).Err
			if !errors.Is(err, ErrKillTimeout) {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		state := n.state(pod)
		if len(state.Waiters) != 0 || len(n.waiters.channels) != 0 || n.workers[pod.UID].disruption != nil || amended {
			t.Errorf("%d waiters, %d channels, amended %t", len(state.Waiters), len(n.waiters.channels), amended)
		}
		if state.Evicted() || !state.Termination.Hastened || n.cfg.Store.ShouldPodContentBeRemoved(pod.UID) {
			t.Errorf("%+v", state.Termination)
		}
		n.expectCalls("sync a create", "terminate a 30", "terminate a 1")
	})
}

func TestFirstDisruptionIsReported(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.advance(2 * time.Second)
		var reasons []string
		n.script.onTerminate = func(ctx context.Context, request podsync.TerminateRequest) error {
			reasons = append(reasons, request.Disruption.Reason)
			return terminateSlowly(ctx, request)
		}
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{Evict: true, Disruption: &podkill.Disruption{Reason: "first"}})
		n.advance(time.Second)
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{
			Evict: true, Disruption: &podkill.Disruption{Reason: "second"}, GracePeriod: new(int64(2)),
		})
		n.advance(5 * time.Second)
		if len(reasons) != 2 || reasons[0] != "first" || reasons[1] != "first" {
			t.Errorf("reasons %q", reasons)
		}
		if !n.state(pod).Evicted() || !n.cfg.Store.ShouldPodContentBeRemoved(pod.UID) {
			t.Error("not evicted")
		}
	})
}

// D46: exit codes are read after all containers have stopped; until then the sync loop must not remove a container.
func TestContentOfAnEvictedPodIsKeptUntilItsEnd(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.script.onTerminate = terminateSlowly
		n.advance(2 * time.Second)
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{Evict: true, GracePeriod: new(int64(5))})
		n.advance(4 * time.Second)
		if n.phase(pod) != podlifecycle.Terminating || n.cfg.Store.ShouldPodContentBeRemoved(pod.UID) {
			t.Errorf("content may be removed in phase %v", n.phase(pod))
		}
		n.advance(4 * time.Second)
		if n.phase(pod) == podlifecycle.Terminating || !n.cfg.Store.ShouldPodContentBeRemoved(pod.UID) {
			t.Errorf("content must not be removed in phase %v", n.phase(pod))
		}
	})
}

// D27: requests are merged. A later one with a longer grace period and without eviction has no effect, also while the
// worker has not processed the first one.
func TestKillRequestsMerge(t *testing.T) {
	bubble(t, func(n *node) {
		release := make(chan struct{})
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			<-release
			return podsync.SyncResult{}, nil
		}
		pod := newPod("a")
		n.start(pod)
		first, second := make(chan struct{}), make(chan struct{})
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{Evict: true, GracePeriod: new(int64(4)), Completed: first})
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: new(int64(20)), Completed: second})
		n.send(kubetypes.SyncPodUpdate, pod)
		close(release)
		n.advance(3 * time.Second)
		n.expectCalls("sync a create", "terminate a 4", "clean up a")
		<-first
		<-second
		if !n.state(pod).Evicted() {
			t.Error("the eviction is lost")
		}
	})
}
