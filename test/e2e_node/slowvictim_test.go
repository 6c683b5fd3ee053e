//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// slowGrace is the grace period, in seconds, of a victim that ignores SIGTERM: enough for other pods to become Ready
// and to be deleted meanwhile.
var slowGrace = 30 * int64(cluster.TimeFactor())

// TestSlowVictimDoesNotBlockOtherPods binds a critical pod to a full node. Its preemption victim takes long to stop.
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

	other := s.wait(s.create(kit.Bound(requesting("other", 16))), podTimeout, kit.Ready)
	s.remove(idle)
	s.must(stillRuns(s.get(victim.Name)))
	s.must(waitsForRoom(s.get(critical.Name)))

	s.must(node.StopKubelet(s.ctx))
	s.must(node.StartKubelet(s.ctx, nil))
	s.wait(critical, podTimeout, kit.Ready)
	took := time.Since(began)
	t.Logf("the critical pod was Ready after %v", took.Round(100*time.Millisecond))
	if took < time.Duration(slowGrace)*time.Second {
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
