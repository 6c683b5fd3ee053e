package podworkers

import (
	"context"
	"testing"

	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// slowEarlierPods returns from each call when the test sends a token, even if its context has ended.
type slowEarlierPods struct{ answer chan struct{} }

func (r *slowEarlierPods) RunningStaticPods(context.Context, string) ([]*kubecontainer.Pod, error) {
	<-r.answer
	return nil, nil
}

// A static pod leaves the configuration while its worker queries the runtime, and is created again with the same UID.
// The first worker must not take the update of the second.
func TestRemovedWorkerTakesNoWorkOfItsSuccessor(t *testing.T) {
	runtime := &slowEarlierPods{}
	bubble(t, func(n *node) {
		runtime.answer = make(chan struct{})
		pod := staticPod("a", "fixed")
		n.start(pod)
		n.SyncKnownPods(nil)
		n.start(pod)
		runtime.answer <- struct{}{} // for the first caller
		n.advance(0)
		n.expectPhase(pod, podlifecycle.Known)
		runtime.answer <- struct{}{}
		n.advance(0)
		n.expectCalls("sync a create")
	}, func(c *Config) { c.EarlierStaticPods = runtime })
}

// The result of an operation does not affect a later worker with the same UID.
func TestRemovedWorkerReportsNothingForItsSuccessor(t *testing.T) {
	bubble(t, func(n *node) {
		pod, release := newPod("a"), make(chan struct{})
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			<-release
			return podsync.SyncResult{}, nil
		}
		n.start(pod)
		defer close(release)
		removed := newWorker(t.Context(), identity{uid: pod.UID, name: klog.KObj(pod)}, n.running)
		n.report(removed, job{op: podlifecycle.OpSync}, result{outcome: podlifecycle.Completed})
		if s := n.state(pod); s.Phase != podlifecycle.Syncing || s.Operation != podlifecycle.OpSync {
			t.Errorf("the pod is %v and its worker does %v, want Syncing and sync", s.Phase, s.Operation)
		}
		removed.cancel()
	})
}
