package podworkers

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// afterFailures returns a function that fails the first n times it is called.
func afterFailures(n int) func() error {
	return func() error {
		if n--; n >= 0 {
			return errors.New("no runtime")
		}
		return nil
	}
}

// passes lets d pass, while the sync loop looks for pods that are due every second. The given ones are those that a source
// names.
func (n *node) passes(d time.Duration, pods ...*v1.Pod) {
	for range d / time.Second {
		n.after(time.Second)
		n.syncLoop(pods...)
	}
}

// A static pod is moved away while the runtime is down. Its end needs no source, and no housekeeping, which waits for all
// of them.
func TestTerminationThatFailedIsTriedAgainWithoutASource(t *testing.T) {
	for name, backAfter := range map[string]time.Duration{
		"moved back at once": 0, "moved back after the first retry was due": 2 * backoff, "not moved back": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(n *node) {
				stops, cleansUp := afterFailures(2), afterFailures(2)
				n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { return stops() }
				n.script.onCleanUp = func(context.Context, *v1.Pod, *kubecontainer.PodStatus) error { return cleansUp() }
				pod := staticPod("a", "fixed")
				n.start(pod)
				n.after(2 * time.Second)
				n.send(kubetypes.SyncPodKill, pod)
				if n.passes(backAfter); backAfter < time.Hour {
					n.create(pod)
				}
				n.passes(8*backoff, pod)
				n.wantCalls(
					"sync a create", "terminate a 30", "terminate a 30", "terminate a 30", "clean up a", "clean up a", "clean up a",
				)
				n.wantPhase(pod, podlifecycle.Finished)
			})
		})
	}
}

// A pod of which only the runtime knows has no source that could name it.
func TestRuntimePodIsTriedAgain(t *testing.T) {
	bubble(t, func(n *node) {
		stops := afterFailures(2)
		n.script.onTerminateOther = func(context.Context, *kubecontainer.Pod) error { return stops() }
		pod := &kubecontainer.Pod{ID: "u", Name: "a", Namespace: "ns"}
		n.UpdatePod(t.Context(), Update{UpdateType: kubetypes.SyncPodKill, RunningPod: pod})
		n.passes(4 * backoff)
		n.wantCalls("terminate runtime pod a", "terminate runtime pod a", "terminate runtime pod a")
		if uids := n.cfg.Store.UIDs(); len(uids) != 0 {
			t.Errorf("known: %v", uids)
		}
	})
}

// Before all sources have reported a pod is left running that none names, and it is not synced: it may have changed.
func TestPodThatIsNotStoppedIsNotSyncedWithoutASource(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.passes(3 * resync)
		n.Retry(types.UID("unknown"))
		n.wantCalls("sync a create")
	})
}

// What is under way is not begun a second time.
func TestRetryDoesNotDisturbARunningTermination(t *testing.T) {
	bubble(t, func(n *node) {
		pod, release := newPod("a"), make(chan struct{})
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { <-release; return nil }
		n.start(pod)
		n.send(kubetypes.SyncPodKill, pod)
		n.after(3 * time.Second)
		n.Retry(pod.UID)
		n.after(time.Second)
		close(release)
		n.after(3 * time.Second)
		n.Retry(pod.UID)
		n.wantCalls("sync a create", "terminate a 30", "clean up a")
		n.wantPhase(pod, podlifecycle.Finished)
	})
}
