package podworkers

import (
	"context"
	"errors"
	"testing"
	"time"

	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// D28: a kill does not depend on a working PLEG, whether the worker is idle or its sync waits for a status.
func TestKillDoesNotWaitForAStuckPLEG(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		bubble(t, func(n *node) {
			pod := newPod("a")
			n.start(pod)
			n.breakPLEG()
			begin := time.Now()
			if err := n.kill(pod, true, nil); err != nil || time.Since(begin) > defaultStatusWait {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		})
	})
	t.Run("status is new enough", func(t *testing.T) {
		bubble(t, func(n *node) {
			pod := newPod("a")
			n.start(pod)
			n.advance(2 * time.Second)
			n.breakPLEG()
			begin := time.Now()
			if err := n.kill(pod, true, nil); err != nil || time.Since(begin) != 0 {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		})
	})
	t.Run("sync waits for a status", func(t *testing.T) {
		bubble(t, func(n *node) {
			pod := newPod("a")
			n.start(pod)
			n.breakPLEG()
			n.send(kubetypes.SyncPodUpdate, pod)
			n.advance(time.Minute)
			begin := time.Now()
			if err := n.kill(pod, true, nil); err != nil || time.Since(begin) > defaultStatusWait {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
			n.expectCalls("sync a create", "terminate a 30")
		})
	})
	t.Run("the runtime does not return the status", func(t *testing.T) {
		bubble(t, func(n *node) {
			pod := newPod("a")
			n.start(pod)
			n.cache.Set(pod.UID, nil, errors.New("inspect timed out"), time.Now().Add(time.Second))
			if err := n.kill(pod, true, nil); err != nil {
				t.Error(err)
			}
		})
	})
}

// A termination gets a status newer than the cancelled sync, with the containers that the sync has started.
func TestTerminationGetsAStatusNewerThanTheLastSync(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.script.onSync = func(ctx context.Context, _ podsync.SyncRequest) (podsync.SyncResult, error) {
			err := untilCancelled(ctx)
			time.AfterFunc(time.Second, func() { n.cache.Set(pod.UID, running(pod), nil, time.Now()) })
			return podsync.SyncResult{}, err
		}
		seen := 0
		n.script.onTerminate = func(_ context.Context, request podsync.TerminateRequest) error {
			seen = len(request.Status.ContainerStatuses)
			return nil
		}
		n.breakPLEG()
		n.start(pod)
		n.send(kubetypes.SyncPodKill, pod)
		n.advance(2 * time.Second)
		n.expectCalls("sync a create", "terminate a 30")
		if seen != 1 {
			t.Error("the status of the termination lacks the container")
		}
	})
}
