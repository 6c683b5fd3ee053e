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

func (s *sources) GetPodByUID(uid types.UID) (*v1.Pod, bool) {
	i := slices.IndexFunc(s.pods, func(pod *v1.Pod) bool { return pod.UID == uid })
	if i < 0 {
		return nil, false
	}
	return s.pods[i], true
}

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

// podsOfEachKind has a pod for each reason to be active or not.
func podsOfEachKind() *sources {
	return &sources{
		pods: []*v1.Pod{
			fixture.Pod("running"),
			fixture.InPhase(fixture.Pod("failed"), v1.PodFailed),
			fixture.InPhase(fixture.Pod("failed-and-terminating"), v1.PodFailed),
			fixture.Pod("rejected-by-the-agent"),
			fixture.Pod("terminated"),
		},
		terminated:  []types.UID{"terminated"},
		terminating: []types.UID{"failed-and-terminating", "terminated"},
		terminal:    []types.UID{"rejected-by-the-agent"},
		resized:     "running",
	}
}

func TestActive(t *testing.T) {
	s := podsOfEachKind()
	view := New(s, s, s)
	active := []string{"running", "failed-and-terminating"}
	fixture.ExpectEqual(t, "active pods", fixture.Names(view.Active()), active)
	fixture.ExpectEqual(t, "allocated pods without allocations", fixture.Names(view.Allocated()), active)
	fixture.ExpectEqual(t, "allocated pods", fixture.Names(view.WithAllocations(s).Allocated()),
		[]string{"allocated", "failed-and-terminating"})
}

func TestAllocatedByUIDFindsThePodsThatAllocatedLists(t *testing.T) {
	s := podsOfEachKind()
	for _, view := range []*View{New(s, s, s), New(s, s, s).WithAllocations(s)} {
		var found []*v1.Pod
		for _, pod := range append(s.pods, fixture.Pod("unknown")) {
			if got, ok := view.AllocatedByUID(pod.UID); ok {
				found = append(found, got)
			}
		}
		fixture.ExpectEqual(t, "pods found by UID", found, view.Allocated())
	}
}
