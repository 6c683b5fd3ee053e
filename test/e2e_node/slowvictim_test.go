//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// slowGrace is the grace period, in seconds, of a victim that ignores SIGTERM.
	slowGrace = 30
	// promptLimit is the time within which an idle pod must be Ready, or be deleted. It is much less than the grace
	// period.
	promptLimit = 10 * time.Second
)

// TestSlowVictimDoesNotBlockOtherPods binds a critical pod to a full node. Its preemption victim takes 30 s to stop.
// The critical pod waits for that; a pod that is created meanwhile does not, and neither does one that is deleted.
// Stock handles no pod until the victim has stopped. Meanwhile the kubelet is restarted, and neither the old nor the
// new one preempts another pod.
func TestSlowVictimDoesNotBlockOtherPods(t *testing.T) {
	s := newSpace(t)
	victim, before := s.fullNode(podThat("victim", neverEnds, slowGrace))
	idle := s.ready(requesting("idle", 16))
	began := time.Now()
	critical := s.create(s.criticalPod())
	s.eventually(podTimeout, func(context.Context) error { return s.onlyPreempted(victim) })

	bound := time.Now()
	other := s.wait(s.create(kit.Bound(requesting("other", 16))), podTimeout, kit.Ready)
	took := time.Since(bound)
	t.Logf("the pod that was created meanwhile was Ready after %v", took.Round(100*time.Millisecond))
	if took > promptLimit {
		t.Errorf("the pod that was created meanwhile took %v, want at most %v", took, promptLimit)
	}
	deleted := time.Now()
	s.remove(idle)
	if took := time.Since(deleted); took > promptLimit {
		t.Errorf("the pod that was deleted meanwhile took %v, want at most %v", took, promptLimit)
	}
	s.must(stillRuns(s.get(victim.Name)))
	s.must(waitsForRoom(s.get(critical.Name)))

	s.must(node.StopKubelet(s.ctx))
	s.must(node.StartKubelet(s.ctx, nil))
	s.wait(critical, podTimeout, kit.Ready)
	took = time.Since(began)
	t.Logf("the critical pod was Ready after %v", took.Round(100*time.Millisecond))
	if took < slowGrace*time.Second {
		t.Errorf("the critical pod was Ready after %v, before its victim's grace of %d s was over", took, slowGrace)
	}
	s.wait(victim, podTimeout, endedFor("Preempting"))
	s.must(kit.Ready(s.get(other.Name)))
	s.must(errors.Join(s.onlyPreempted(victim), s.sameAs(before)))
}

// stillRuns is nil if the container of the pod runs.
func stillRuns(pod *v1.Pod) error {
	status, err := container(pod, "main")
	if err != nil {
		return err
	}
	if status.State.Running == nil {
		return errors.New("not running: " + kit.Describe(pod))
	}
	return nil
}
