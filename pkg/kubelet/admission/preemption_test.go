package admission

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// roles are those of pods during a preemption.
type roles struct {
	preemptors, victims []types.UID
	// sizes are what pods request of a node that has 10.
	sizes map[types.UID]int
	calls int
}

func (r *roles) IsWaitingForVictims(uid types.UID) bool { return slices.Contains(r.preemptors, uid) }
func (r *roles) IsVictim(uid types.UID) bool            { return slices.Contains(r.victims, uid) }

func (r *roles) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	r.calls++
	sum := r.sizes[attrs.Pod.UID]
	for _, p := range attrs.OtherPods {
		sum += r.sizes[p.UID]
	}
	return lifecycle.PodAdmitResult{Admit: sum <= 10}
}

func TestPredicatesBeforeAndAfterPreemption(t *testing.T) {
	critical := pod("new")
	priority := int32(2_000_000_000)
	critical.Spec.Priority = &priority
	for name, test := range map[string]struct {
		preemptor, victim, size int
		pod                     *v1.Pod
		waiting                 bool
		want                    bool
		calls                   int
	}{
		"fits both times":                   {5, 8, 2, pod("new"), true, true, 2},
		"does not fit before":               {5, 8, 3, pod("new"), true, false, 1},
		"does not fit after":                {8, 5, 3, pod("new"), true, false, 2},
		"a critical pod, all of them count": {5, 8, 2, critical, true, false, 1},
		"no preemptor waits for the victim": {5, 8, 2, pod("new"), false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := &roles{
				victims: []types.UID{"victim"},
				sizes:   map[types.UID]int{"new": test.size, "preemptor": test.preemptor, "victim": test.victim},
			}
			if test.waiting {
				r.preemptors = []types.UID{"preemptor"}
			}
			others := []*v1.Pod{pod("victim"), pod("preemptor")}
			got := NewBeforeAndAfterPreemption(r, r, r).Admit(&lifecycle.PodAdmitAttributes{Pod: test.pod, OtherPods: others})
			if got.Admit != test.want || r.calls != test.calls {
				t.Errorf("admitted: %v, %d calls of the predicates; want %v, %d", got.Admit, r.calls, test.want, test.calls)
			}
			if others[0] == nil || others[1] == nil {
				t.Error("the caller's list was changed")
			}
		})
	}
}
