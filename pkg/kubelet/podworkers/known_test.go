package podworkers

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

func TestSyncKnownPods(t *testing.T) {
	bubble(t, func(n *node) {
		steady, gone, static, ended := newPod("steady"), newPod("gone"), staticPod("static", "s"), newPod("ended")
		for _, pod := range []*v1.Pod{steady, gone, static, ended} {
			n.start(pod)
		}
		n.send(kubetypes.SyncPodKill, ended)
		n.advance(3 * time.Second)
		n.script.onTerminate = terminateSlowly
		desired := []*v1.Pod{steady, static, ended}
		want := map[types.UID]KnownPod{
			steady.UID: {State: podlifecycle.WorkSync, HasConfig: true},
			gone.UID:   {State: podlifecycle.WorkTerminating, HasConfig: true, Orphan: true},
			static.UID: {State: podlifecycle.WorkSync, HasConfig: true, Static: true},
			ended.UID:  {State: podlifecycle.WorkTerminated, HasConfig: true},
		}
		if got := n.SyncKnownPods(desired); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		n.advance(40 * time.Second)
		delete(want, gone.UID)
		if got := n.SyncKnownPods(desired); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		delete(want, ended.UID)
		if got := n.SyncKnownPods(desired[:2]); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// A pod without a worker counts as running until the first SyncKnownPods.
func TestUnknownPodsBeforeAndAfterTheFirstSync(t *testing.T) {
	bubble(t, func(n *node) {
		store := n.cfg.Store
		if !store.CouldHaveRunningContainers("x") || store.ShouldPodContainersBeTerminating("x") ||
			store.ShouldPodContentBeRemoved("x") {
			t.Error("an unknown pod does not count as running before the first SyncKnownPods")
		}
		n.SyncKnownPods(nil)
		if store.CouldHaveRunningContainers("x") || !store.ShouldPodContainersBeTerminating("x") ||
			!store.ShouldPodContentBeRemoved("x") {
			t.Error("an unknown pod counts as running after the first SyncKnownPods")
		}
	})
}

// Housekeeping repeats the failed termination of a pod that left the configuration.
func TestTerminationOfOrphansIsRetried(t *testing.T) {
	bubble(t, func(n *node) {
		failures := 3
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error {
			if failures--; failures >= 0 {
				return errors.New("no")
			}
			return nil
		}
		pod := newPod("a")
		n.start(pod)
		for range 7 {
			n.SyncKnownPods(nil)
			n.advance(2 * time.Second)
		}
		if uids := n.cfg.Store.UIDs(); len(uids) != 0 {
			t.Errorf("still known: %v, calls %q", uids, n.script.calls)
		}
	})
}

func TestOrphanThatHasNotStartedIsRemoved(t *testing.T) {
	bubble(t, func(n *node) {
		first, second := staticPod("a", "1"), staticPod("a", "2")
		n.start(first)
		n.start(second)
		if known := n.SyncKnownPods([]*v1.Pod{first}); len(known) != 1 {
			t.Errorf("known: %v", known)
		}
		synctest.Wait()
		n.expectCalls("sync a create")
	})
}

// Before all sources have been read, SyncStaticPods removes a finished pod that was created again, and terminates a
// static pod that its source has dropped. It does not change pods of other sources.
func TestSyncStaticPods(t *testing.T) {
	bubble(t, func(n *node) {
		failures := 2
		n.script.onTerminate = func(_ context.Context, request podsync.TerminateRequest) error {
			if request.Pod.Name != "dropped" { // workers of several pods call it at the same time
				return nil
			}
			if failures--; failures >= 0 {
				return errors.New("no")
			}
			return nil
		}
		dropped, again, silent, ended := staticPod("dropped", "d"), staticPod("again", "r"), newPod("silent"), newPod("ended")
		for _, pod := range []*v1.Pod{dropped, again, silent, ended} {
			n.start(pod)
		}
		for _, pod := range []*v1.Pod{dropped, again, ended} {
			n.send(kubetypes.SyncPodKill, pod)
		}
		n.create(again)
		n.advance(3 * time.Second)
		for range 4 {
			n.SyncStaticPods([]*v1.Pod{again})
			n.advance(2 * time.Second)
		}
		want := map[types.UID]KnownPod{
			silent.UID: {State: podlifecycle.WorkSync, HasConfig: true, Orphan: true},
			ended.UID:  {State: podlifecycle.WorkTerminated, HasConfig: true, Orphan: true},
		}
		if got := n.SyncStaticPods([]*v1.Pod{again}); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if n.cfg.Store.ShouldPodContentBeRemoved("unknown") {
			t.Error("a pod without a source counts as stopped")
		}
	})
}
