package podworkers

import (
	"context"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// mustReserve begins a removal, which must be permitted.
func (n *node) mustReserve(pod *v1.Pod) (end func()) {
	n.t.Helper()
	end, ok := n.BeginRemoval(pod.UID)
	if !ok {
		n.t.Fatalf("nothing of %s may be removed, which is %v", pod.Name, n.phase(pod))
	}
	return end
}

func (n *node) mustNotReserve(pod *v1.Pod) {
	n.t.Helper()
	if _, ok := n.BeginRemoval(pod.UID); ok {
		n.t.Errorf("leftovers of %s may be removed, which is %v", pod.Name, n.phase(pod))
	}
}

// Nothing may be removed of a pod from its first update until its containers have stopped.
func TestRemovalIsRefusedWhileThePodMayRun(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		goOn := make(chan struct{})
		defer close(goOn)
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			<-goOn
			return podsync.SyncResult{}, nil
		}
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { <-goOn; return nil }
		n.script.onCleanUp = func(context.Context, *v1.Pod, *kubecontainer.PodStatus) error { <-goOn; return nil }
		n.mustReserve(pod)()
		n.start(pod)
		n.expectPhase(pod, podlifecycle.Syncing)
		n.mustNotReserve(pod)
		n.send(kubetypes.SyncPodKill, pod)
		n.expectPhase(pod, podlifecycle.Terminating)
		n.mustNotReserve(pod) // its last sync still runs
		goOn <- struct{}{}
		synctest.Wait()
		n.mustNotReserve(pod) // it is being stopped
		goOn <- struct{}{}
		synctest.Wait()
		n.expectPhase(pod, podlifecycle.Terminated)
		n.mustReserve(pod)()
		goOn <- struct{}{}
		synctest.Wait()
		n.expectPhase(pod, podlifecycle.Finished)
		n.mustReserve(pod)()
		n.SyncKnownPods(nil)
		n.expectPhase(pod, podlifecycle.Unknown)
		n.mustReserve(pod)()
	})
}

// A static pod whose manifest was moved away and back starts when the last removal ends, at once.
func TestPodStartsAfterTheLastRemoval(t *testing.T) {
	bubble(t, func(n *node) {
		pod := staticPod("a", "fixed")
		first, second := n.mustReserve(pod), n.mustReserve(pod)
		n.start(pod)
		n.mustNotReserve(pod)
		first()
		n.advance(resync)
		n.syncLoop(pod)
		n.expectPhase(pod, podlifecycle.Known)
		n.expectCalls()
		second()
		synctest.Wait()
		n.expectPhase(pod, podlifecycle.Syncing)
		if len(n.removals) != 0 {
			t.Errorf("removals %v", n.removals)
		}
	})
}

// A finished pod is started again with the same UID while something of it is being removed: the removal was reserved
// when the earlier worker existed.
func TestRemovalOutlivesTheWorker(t *testing.T) {
	bubble(t, func(n *node) {
		pod := staticPod("a", "fixed")
		n.start(pod)
		n.send(kubetypes.SyncPodKill, pod)
		n.advance(backoff)
		n.expectPhase(pod, podlifecycle.Finished)
		end := n.mustReserve(pod)
		n.create(pod) // requests that it starts again
		n.SyncKnownPods([]*v1.Pod{pod})
		n.expectPhase(pod, podlifecycle.Unknown)
		n.script.reset()
		n.start(pod)
		n.expectPhase(pod, podlifecycle.Known)
		n.expectCalls()
		end()
		synctest.Wait()
		n.expectCalls("sync a create")
	})
}

// A removal blocks neither a kill nor other pods, and a pod that was stopped meanwhile does not start afterwards.
func TestRemovalBlocksNoKill(t *testing.T) {
	for name, pod := range map[string]*v1.Pod{"regular": newPod("a"), "static": staticPod("a", "fixed")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(n *node) {
				end := n.mustReserve(pod)
				n.start(pod)
				n.start(newPod("other"))
				stopped := make(chan struct{})
				n.send(kubetypes.SyncPodKill, pod, &KillOptions{Completed: stopped})
				<-stopped
				n.advance(backoff)
				n.expectPhase(pod, podlifecycle.Finished)
				n.expectPhase(newPod("other"), podlifecycle.Syncing)
				n.SyncKnownPods([]*v1.Pod{newPod("other")})
				end()
				synctest.Wait()
				n.expectPhase(pod, podlifecycle.Unknown)
			})
		})
	}
}

// A worker that waits for the end of a removal ends with the agent.
func TestAgentStopsDuringARemoval(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		end := n.mustReserve(pod)
		n.start(pod)
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		end()
	})
}
