package admission

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// roles are those of pods while room changes hands.
type roles struct {
	heirs, leavers []types.UID
	// sizes are what pods ask for, of a node that has 10.
	sizes map[types.UID]int
	asked int
}

func (r *roles) HoldsForVictims(uid types.UID) bool { return slices.Contains(r.heirs, uid) }
func (r *roles) Leaving(uid types.UID) bool         { return slices.Contains(r.leavers, uid) }

func (r *roles) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	r.asked++
	sum := r.sizes[attrs.Pod.UID]
	for _, p := range attrs.OtherPods {
		sum += r.sizes[p.UID]
	}
	return lifecycle.PodAdmitResult{Admit: sum <= 10}
}

func TestARoomThatChangesHandsCountsOnce(t *testing.T) {
	critical := pod("new")
	priority := int32(2_000_000_000)
	critical.Spec.Priority = &priority
	for name, test := range map[string]struct {
		heir, leaver, size int
		pod                *v1.Pod
		waits              bool
		want               bool
		asked              int
	}{
		"fits before and after":                {heir: 5, leaver: 8, size: 2, pod: pod("new"), waits: true, want: true, asked: 2},
		"does not fit before":                  {heir: 5, leaver: 8, size: 3, pod: pod("new"), waits: true, asked: 1},
		"does not fit after":                   {heir: 8, leaver: 5, size: 3, pod: pod("new"), waits: true, asked: 2},
		"critical beside all of them":          {heir: 5, leaver: 8, size: 2, pod: critical, waits: true, asked: 1},
		"nobody waits for those who are going": {heir: 5, leaver: 8, size: 2, pod: pod("new"), asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := &roles{leavers: []types.UID{"leaver"}, sizes: map[types.UID]int{"new": test.size, "heir": test.heir, "leaver": test.leaver}}
			if test.waits {
				r.heirs = []types.UID{"heir"}
			}
			others := []*v1.Pod{pod("leaver"), pod("heir")}
			got := NewHandover(r, r, r).Admit(&lifecycle.PodAdmitAttributes{Pod: test.pod, OtherPods: others})
			if got.Admit != test.want || r.asked != test.asked {
				t.Errorf("admitted: %v, asked %d times; want %v, %d", got.Admit, r.asked, test.want, test.asked)
			}
			if others[0] == nil || others[1] == nil {
				t.Error("the caller's list was changed")
			}
		})
	}
}
