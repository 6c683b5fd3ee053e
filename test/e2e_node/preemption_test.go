//go:build e2e

package e2enode

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestCriticalPodPreemptsOnePod binds a critical pod to a node whose memory is fully requested. Only the smallest pod
// whose end is enough is preempted.
func TestCriticalPodPreemptsOnePod(t *testing.T) {
	s := newSpace(t)
	s.noPressure()
	got, err := kit.Node(s.ctx, s.client)
	s.must(err)
	allocatable := got.Status.Allocatable.Memory().Value() / mebibyte
	large, small, tiny := allocatable*5/10, allocatable*3/10, allocatable*1/10
	pods := map[string]*v1.Pod{}
	for name, size := range map[string]int64{"large": large, "small": small, "tiny": tiny} {
		pods[name] = s.ready(requesting(name, size))
	}

	critical := requesting("critical", small)
	critical.Spec.PriorityClassName = "system-node-critical"
	s.ready(kit.Bound(critical))

	victim := s.wait(pods["small"], podTimeout, endedFor("Preempting"))
	if kit.ConditionStatus(victim, v1.DisruptionTarget) != v1.ConditionTrue {
		t.Errorf("the victim lacks the condition DisruptionTarget: %v", victim.Status.Conditions)
	}
	for _, name := range []string{"large", "tiny"} {
		s.must(kit.Ready(s.get(name)))
	}
}

func TestPodThatDoesNotFitIsRejected(t *testing.T) {
	s := parallelSpace(t)
	got, err := kit.Node(s.ctx, s.client)
	s.must(err)
	tooLarge := requesting("too-large", got.Status.Allocatable.Memory().Value()/mebibyte+64)
	s.wait(s.create(kit.Bound(tooLarge)), podTimeout, endedFor("OutOfmemory"))
}

// requesting is an idle pod that requests that many MiB.
func requesting(name string, mebibytes int64) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.Containers[0].Resources.Requests = kit.Mebibytes(mebibytes)
	return pod
}
