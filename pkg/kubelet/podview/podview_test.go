package podview

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// facts answers everything a view asks.
type facts struct {
	pods                           []*v1.Pod
	terminated, terminating, ended []types.UID
	allocated                      types.UID
}

func (f *facts) GetPods() []*v1.Pod                      { return slices.Clone(f.pods) }
func (f *facts) IsPodKnownTerminated(uid types.UID) bool { return slices.Contains(f.terminated, uid) }
func (f *facts) IsPodTerminationRequested(uid types.UID) bool {
	return slices.Contains(f.terminating, uid)
}
func (f *facts) ShouldPodBeFinished(uid types.UID) bool { return slices.Contains(f.terminated, uid) }

func (f *facts) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	return v1.PodStatus{Phase: v1.PodFailed}, slices.Contains(f.ended, uid)
}

func (f *facts) UpdatePodFromAllocation(pod *v1.Pod) (*v1.Pod, bool) {
	if pod.UID != f.allocated {
		return pod, false
	}
	out := pod.DeepCopy()
	out.Name = "allocated"
	return out, true
}

func aPod(uid types.UID, phase v1.PodPhase) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid)}, Status: v1.PodStatus{Phase: phase}}
}

func names(pods []*v1.Pod) (out []string) {
	for _, pod := range pods {
		out = append(out, pod.Name)
	}
	return out
}

func TestActive(t *testing.T) {
	f := &facts{
		pods: []*v1.Pod{aPod("runs", v1.PodRunning), aPod("failed", v1.PodFailed), aPod("failed-but-stopping", v1.PodFailed),
			aPod("rejected-by-us", v1.PodPending), aPod("gone", v1.PodRunning)},
		terminated:  []types.UID{"gone"},
		terminating: []types.UID{"failed-but-stopping", "gone"},
		ended:       []types.UID{"rejected-by-us"},
		allocated:   "runs",
	}
	view := New(f, f, f)
	if got, want := names(view.Active()), []string{"runs", "failed-but-stopping"}; !slices.Equal(got, want) {
		t.Errorf("active: %v, want %v", got, want)
	}
	if got := names(view.Allocated()); got[0] != "runs" {
		t.Errorf("without allocations: %v", got)
	}
	if got, want := names(view.WithAllocations(f).Allocated()), []string{"allocated", "failed-but-stopping"}; !slices.Equal(got, want) {
		t.Errorf("allocated: %v, want %v", got, want)
	}
}
