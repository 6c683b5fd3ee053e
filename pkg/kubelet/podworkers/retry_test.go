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

// failTimes returns a function that fails the first n times it is called.
func failTimes(n int) func() error {
	return func() error {
		if n--; n >= 0 {
			return errors.New("no runtime")
		}
		return nil
	}
}

// runSyncLoop advances the time by d, and runs the sync loop every second. The sources have the given pods.
func (n *node) runSyncLoop(d time.Duration, pods ...*v1.Pod) {
	for range d / time.Second {
		n.advance(time.Second)
		n.syncLoop(pods...)
	}
}

// The manifest of a static pod is moved away while the runtime is down. The termination is retried without a source,
// and without housekeeping, which waits for all sources.
func TestFailedTerminationIsRetriedWithoutASource(t *testing.T) {
	for name, backAfter := range map[string]time.Duration{
		"moved back at once": 0, "moved back after the first retry was due": 2 * backoff, "not moved back": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(n *node) {
				stops, cleansUp := failTimes(2), failTimes(2)
				n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { return stops() }
				n.script.onCleanUp = func(context.Context, *v1.Pod, *kubecontainer.PodStatus) error { return cleansUp() }
				pod := staticPod("a", "fixed")
				n.start(pod)
				n.advance(2 * time.Second)
				n.send(kubetypes.SyncPodKill, pod)
				if n.runSyncLoop(backAfter); backAfter < time.Hour {
					n.create(pod)
				}
				n.runSyncLoop(8*backoff, pod)
				n.expectCalls(
					"sync a create", "terminate a 30", "terminate a 30", "terminate a 30", "clean up a", "clean up a", "clean up a",
				)
				n.expectPhase(pod, podlifecycle.Finished)
			})
		})
	}
}

// The termination of a runtime pod, which has no source, is retried.
func TestTerminationOfRuntimePodIsRetried(t *testing.T) {
	bubble(t, func(n *node) {
		stops := failTimes(2)
		n.script.onTerminateOther = func(context.Context, *kubecontainer.Pod) error { return stops() }
		pod := &kubecontainer.Pod{ID: "u", Name: "a", Namespace: "ns"}
		n.UpdatePod(t.Context(), Update{UpdateType: kubetypes.SyncPodKill, RunningPod: pod})
		n.runSyncLoop(4 * backoff)
		n.expectCalls("terminate runtime pod a", "terminate runtime pod a", "terminate runtime pod a")
		if uids := n.cfg.Store.UIDs(); len(uids) != 0 {
			t.Errorf("known: %v", uids)
		}
	})
}

// Before all sources have reported, a running pod without a source is neither stopped nor synced.
func TestRunningPodIsNotSyncedWithoutASource(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.runSyncLoop(3 * resync)
		n.Retry(types.UID("unknown"))
		n.expectCalls("sync a create")
	})
}

// A retry does not begin an operation in progress again.
func TestRetryDuringATerminationHasNoEffect(t *testing.T) {
	bubble(t, func(n *node) {
		pod, release := newPod("a"), make(chan struct{})
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { <-release; return nil }
		n.start(pod)
		n.send(kubetypes.SyncPodKill, pod)
		n.advance(3 * time.Second)
		n.Retry(pod.UID)
		n.advance(time.Second)
		close(release)
		n.advance(3 * time.Second)
		n.Retry(pod.UID)
		n.expectCalls("sync a create", "terminate a 30", "clean up a")
		n.expectPhase(pod, podlifecycle.Finished)
	})
}
