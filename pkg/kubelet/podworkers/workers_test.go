package podworkers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

func TestPodIsSyncedPeriodically(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.expectCalls("sync a create")
		n.expectPhase(pod, podlifecycle.Syncing)
		n.advance(resync)
		n.syncLoop(pod)
		n.expectCalls("sync a create")
		n.advance(resync / 2)
		n.syncLoop(pod)
		n.expectCalls("sync a create", "sync a sync")
	})
}

func TestUpdatesMergeWhileTheWorkerIsBusy(t *testing.T) {
	bubble(t, func(n *node) {
		release := make(chan struct{})
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			<-release
			return podsync.SyncResult{}, nil
		}
		pod := newPod("a")
		n.start(pod)
		for range 5 {
			n.send(kubetypes.SyncPodUpdate, pod)
		}
		close(release)
		n.advance(2 * time.Second)
		n.expectCalls("sync a create", "sync a update")
	})
}

func TestSyncWaitsForANewerStatus(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.breakPLEG()
		n.send(kubetypes.SyncPodUpdate, pod)
		n.advance(time.Minute)
		n.expectCalls("sync a create")
		n.cache.UpdateTime(time.Now())
		synctest.Wait()
		n.expectCalls("sync a create", "sync a update")
	})
}

func TestDeletedPodIsTerminatedAndCleanedUp(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.advance(2 * time.Second)
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 7))
		synctest.Wait()
		n.expectPhase(pod, podlifecycle.Terminated)
		n.expectCalls("sync a create", "terminate a 7")
		n.advance(time.Second) // a status newer than the termination
		n.expectPhase(pod, podlifecycle.Finished)
		n.expectCalls("sync a create", "terminate a 7", "clean up a")
		n.send(kubetypes.SyncPodUpdate, pod)
		n.advance(time.Minute)
		n.expectCalls("sync a create", "terminate a 7", "clean up a")
	})
}

func TestCompletedPodIsTerminated(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		recorded := podlifecycle.Unknown
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			return podsync.SyncResult{Terminal: true, AfterSync: func() { recorded = n.phase(pod) }}, nil
		}
		n.start(pod)
		n.advance(3 * time.Second)
		n.expectCalls("sync a create", "terminate a 30", "clean up a")
		if recorded != podlifecycle.Terminating {
			t.Errorf("AfterSync is called in %v, want after the result is recorded", recorded)
		}
	})
}

func TestCompletedWithAnErrorIsSyncedAgain(t *testing.T) {
	bubble(t, func(n *node) {
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			return podsync.SyncResult{Terminal: true}, errors.New("not now")
		}
		pod := newPod("a")
		n.start(pod)
		n.expectPhase(pod, podlifecycle.Syncing)
		n.advance(backoff + backoff/2 + time.Second)
		n.syncLoop(pod)
		n.expectCalls("sync a create", "sync a sync")
	})
}

func TestKillCancelsARunningSync(t *testing.T) {
	bubble(t, func(n *node) {
		n.script.onSync = func(ctx context.Context, _ podsync.SyncRequest) (podsync.SyncResult, error) {
			return podsync.SyncResult{}, untilCancelled(ctx)
		}
		pod := newPod("a")
		n.start(pod)
		n.send(kubetypes.SyncPodKill, pod)
		n.advance(3 * time.Second)
		n.expectCalls("sync a create", "terminate a 30", "clean up a")
	})
}

func TestOrphanCancelsARunningSync(t *testing.T) {
	bubble(t, func(n *node) {
		n.script.onSync = func(ctx context.Context, _ podsync.SyncRequest) (podsync.SyncResult, error) {
			return podsync.SyncResult{}, untilCancelled(ctx)
		}
		pod := newPod("a")
		n.start(pod)
		n.SyncKnownPods(nil)
		n.advance(3 * time.Second)
		n.expectCalls("sync a create", "terminate a 30", "clean up a")
		if known := n.SyncKnownPods(nil); len(known) != 0 {
			t.Errorf("not removed: %v", known)
		}
	})
}

// All syncs of a pod have the same context, which ends when its termination is requested.
func TestSyncContextLivesAsLongAsThePhase(t *testing.T) {
	bubble(t, func(n *node) {
		var contexts []context.Context
		n.script.onSync = func(ctx context.Context, _ podsync.SyncRequest) (podsync.SyncResult, error) {
			contexts = append(contexts, ctx)
			return podsync.SyncResult{}, nil
		}
		pod := newPod("a")
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), contextKey{}, "kept"))
		n.UpdatePod(ctx, Update{UpdateType: kubetypes.SyncPodCreate, Pod: pod})
		cancel()
		n.advance(2 * time.Second)
		n.send(kubetypes.SyncPodUpdate, pod)
		synctest.Wait()
		if len(contexts) != 2 || contexts[0] != contexts[1] || contexts[0].Err() != nil {
			t.Fatalf("contexts %v", contexts)
		}
		if contexts[0].Value(contextKey{}) != "kept" {
			t.Error("the values of the first update's context are lost")
		}
		n.send(kubetypes.SyncPodKill, pod)
		n.advance(3 * time.Second)
		n.expectPhase(pod, podlifecycle.Finished)
		if contexts[0].Err() == nil {
			t.Error("the context outlives the pod")
		}
	})
}

type contextKey struct{}

func TestFailedTerminationIsRepeated(t *testing.T) {
	bubble(t, func(n *node) {
		failures := 2
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error {
			if failures--; failures >= 0 {
				return errors.New("runtime says no")
			}
			return nil
		}
		pod := newPod("a")
		n.start(pod)
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: new(int64(3))})
		for range 40 {
			n.advance(time.Second)
			n.syncLoop(pod)
		}
		n.expectCalls("sync a create", "terminate a 3", "terminate a 3", "terminate a 3", "clean up a")
	})
}

func TestStatusErrorIsAnEvent(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.cache.Set(pod.UID, nil, errors.New("inspect failed"), time.Now().Add(time.Second))
		n.start(pod)
		n.expectCalls()
		if events := n.events.all(); len(events) != 1 ||
			events[0] != "Warning FailedSync error determining status: inspect failed" {
			t.Errorf("events %q", events)
		}
	})
}

// After a restart of the agent a pod that has ended before is only cleaned up, and counts as terminated after the first
// update (kubernetes/kubernetes#105523).
func TestTerminalPodIsOnlyCleanedUp(t *testing.T) {
	bubble(t, func(n *node) {
		pod := completed(newPod("a"))
		n.create(pod)
		if !n.cfg.Store.IsPodKnownTerminated(pod.UID) {
			t.Error("not terminated after the first update")
		}
		synctest.Wait()
		n.expectCalls("clean up a")
		n.expectPhase(pod, podlifecycle.Finished)
	})
}

func TestTerminalPodWithRunningContainersIsTerminated(t *testing.T) {
	bubble(t, func(n *node) {
		pod := completed(newPod("a"))
		n.cache.Set(pod.UID, running(pod), nil, time.Now())
		n.create(pod)
		if n.cfg.Store.IsPodKnownTerminated(pod.UID) {
			t.Error("terminated while its container runs")
		}
		n.advance(2 * time.Second)
		n.expectCalls("terminate a 30", "clean up a")
	})
}

func TestRuntimePodIsTerminatedAndRemoved(t *testing.T) {
	bubble(t, func(n *node) {
		orphan := &container.Pod{ID: "uid-o", Name: "o", Namespace: "ns"}
		update := Update{UpdateType: kubetypes.SyncPodCreate, RunningPod: orphan}
		n.UpdatePod(context.Background(), update)
		synctest.Wait()
		n.expectCalls()
		done := make(chan struct{})
		update.UpdateType, update.Kill = kubetypes.SyncPodKill, &KillOptions{GracePeriod: new(int64(1)), Completed: done}
		n.UpdatePod(context.Background(), update)
		synctest.Wait()
		n.expectCalls("terminate runtime pod o")
		<-done
		if uids := n.cfg.Store.UIDs(); len(uids) != 0 {
			t.Errorf("not removed: %v", uids)
		}
	})
}

func TestRuntimePodWithSpecificationIsTerminatedByIt(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.UpdatePod(context.Background(), Update{UpdateType: kubetypes.SyncPodKill,
			RunningPod: &container.Pod{ID: pod.UID, Name: "a", Namespace: "ns"}})
		n.advance(3 * time.Second)
		n.expectCalls("sync a create", "terminate a 30", "clean up a")
	})
}

func TestFailedRuntimePodIsRetriedByHousekeeping(t *testing.T) {
	bubble(t, func(n *node) {
		failures := 1
		n.script.onTerminateOther = func(context.Context, *container.Pod) error {
			if failures--; failures >= 0 {
				return errors.New("no")
			}
			return nil
		}
		n.UpdatePod(context.Background(), Update{UpdateType: kubetypes.SyncPodKill,
			RunningPod: &container.Pod{ID: "o", Name: "o"}})
		synctest.Wait()
		known := n.SyncKnownPods(nil)
		if got, want := known["o"], (KnownPod{State: podlifecycle.WorkTerminating, Orphan: true}); got != want {
			t.Errorf("known as %+v, want %+v", got, want)
		}
		synctest.Wait()
		n.expectCalls("terminate runtime pod o", "terminate runtime pod o")
	})
}

func TestMirrorPodIsKept(t *testing.T) {
	bubble(t, func(n *node) {
		pod, mirror := staticPod("a", "1"), newPod("a")
		var seen []*v1.Pod
		n.script.onSync = func(_ context.Context, request podsync.SyncRequest) (podsync.SyncResult, error) {
			seen = append(seen, request.MirrorPod)
			return podsync.SyncResult{}, nil
		}
		n.UpdatePod(context.Background(), Update{UpdateType: kubetypes.SyncPodCreate, Pod: pod, MirrorPod: mirror})
		n.advance(2 * time.Second)
		if len(seen) != 1 || seen[0] != mirror {
			t.Errorf("mirror pods %v", seen)
		}
		if active := n.workers[pod.UID].active; active.MirrorPod != mirror {
			t.Error("the mirror pod is not kept")
		}
	})
}
