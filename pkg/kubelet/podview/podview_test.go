package podview

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/test/fixture"
)

// sources implements every interface that a view reads from.
type sources struct {
	pods                              []*v1.Pod
	terminated, terminating, terminal []types.UID
	resized                           types.UID
}

func (s *sources) GetPods() []*v1.Pod { return slices.Clone(s.pods) }

func (s *sources) IsPodKnownTerminated(uid types.UID) bool { return slices.Contains(s.terminated, uid) }

func (s *sources) IsPodTerminationRequested(uid types.UID) bool {
	return slices.Contains(s.terminating, uid)
}

func (s *sources) ShouldPodBeFinished(uid types.UID) bool { return slices.Contains(s.terminated, uid) }

func (s *sources) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	return v1.PodStatus{Phase: v1.PodFailed}, slices.Contains(s.terminal, uid)
}

func (s *sources) UpdatePodFromAllocation(pod *v1.Pod) (*v1.Pod, bool) {
	if pod.UID != s.resized {
		return pod, false
	}
	out := pod.DeepCopy()
	out.Name = "allocated"
	return out, true
}

func TestActive(t *testing.T) {
	s := &sources{
		pods: []*v1.Pod{
			fixture.Pod("running"),
			fixture.InPhase(fixture.Pod("failed"), v1.PodFailed),
			fixture.InPhase(fixture.Pod("failed-and-terminating"), v1.PodFailed),
			fixture.Pod("rejected-by-the-agent"),
			fixture.Pod("terminated"),
		},
		terminated:  []types.UID{"uid-terminated"},
		terminating: []types.UID{"uid-failed-and-terminating", "uid-terminated"},
		terminal:    []types.UID{"uid-rejected-by-the-agent"},
		resized:     "uid-running",
	}
	view := New(s, s, s)
	active := []string{"running", "failed-and-terminating"}
	fixture.ExpectEqual(t, "active pods", fixture.Names(view.Active()), active)
	fixture.ExpectEqual(t, "allocated pods without allocations", fixture.Names(view.Allocated()), active)
	fixture.ExpectEqual(t, "allocated pods", fixture.Names(view.WithAllocations(s).Allocated()),
		[]string{"allocated", "failed-and-terminating"})
}
