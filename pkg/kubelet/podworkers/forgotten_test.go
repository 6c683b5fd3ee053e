package podworkers

import (
	"context"
	"testing"

	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// slowEarlierPods answers each question about static pods when the test sends a token, whatever becomes of the context.
type slowEarlierPods struct{ answer chan struct{} }

func (r *slowEarlierPods) RunningStaticPods(context.Context, string) ([]*kubecontainer.Pod, error) {
	<-r.answer
	return nil, nil
}

// A static pod leaves the configuration while its worker asks the runtime, and comes back with the same UID. The first
// worker must not take the work of the second.
func TestRemovedWorkerTakesNoWorkOfItsSuccessor(t *testing.T) {
	runtime := &slowEarlierPods{}
	bubble(t, func(n *node) {
		runtime.answer = make(chan struct{})
		pod := staticPod("a", "fixed")
		n.start(pod)
		n.SyncKnownPods(nil)
		n.start(pod)
		runtime.answer <- struct{}{} // the first to ask is the first to get an answer
		n.advance(0)
		n.expectPhase(pod, podlifecycle.Known)
		runtime.answer <- struct{}{}
		n.advance(0)
		n.expectCalls("sync a create")
	}, func(c *Config) { c.EarlierStaticPods = runtime })
}

// The result of an operation counts for the worker that did it, not for a later one of the same UID.
func TestRemovedWorkerReportsNothingForItsSuccessor(t *testing.T) {
	bubble(t, func(n *node) {
		pod, release := newPod("a"), make(chan struct{})
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			<-release
			return podsync.SyncResult{}, nil
		}
		n.start(pod)
		defer close(release)
		forgotten := newWorker(t.Context(), identity{uid: pod.UID, name: klog.KObj(pod)}, n.running)
		n.report(forgotten, job{op: podlifecycle.OpSync}, result{outcome: podlifecycle.Completed})
		if s := n.state(pod); s.Phase != podlifecycle.Syncing || s.Doing != podlifecycle.OpSync {
			t.Errorf("the pod is %v and its worker does %v, want Syncing and sync", s.Phase, s.Doing)
		}
		forgotten.cancel()
	})
}
