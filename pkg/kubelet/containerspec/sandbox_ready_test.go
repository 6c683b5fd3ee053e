package containerspec_test

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/containerspec"
)

type statuses struct {
	known map[types.UID]v1.PodStatus
	set   []v1.PodStatus
}

func (s *statuses) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	status, ok := s.known[uid]
	return status, ok
}

func (s *statuses) SetPodStatus(_ klog.Logger, _ *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool) {
	s.set = append(s.set, status)
	return status, true
}

func TestSandboxReady(t *testing.T) {
	pod := basicPod()
	pod.Generation = 3
	pod.Status = v1.PodStatus{Phase: v1.PodPending, Reason: "of the pod"}
	notReady := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse}
	for name, test := range map[string]struct {
		known  map[types.UID]v1.PodStatus
		reason string
		count  int
	}{
		"nothing known yet": {reason: "of the pod", count: 1},
		"condition was false": {
			known:  map[types.UID]v1.PodStatus{podUID: {Reason: "known", Conditions: []v1.PodCondition{notReady}}},
			reason: "known", count: 1,
		},
		"other conditions stand": {
			known: map[types.UID]v1.PodStatus{podUID: {Conditions: []v1.PodCondition{{Type: v1.PodScheduled}}}}, count: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &statuses{known: test.known}
			if err := containerspec.SandboxReady(s, true)(context.Background(), pod); err != nil {
				t.Fatal(err)
			}
			if len(s.set) != 1 || s.set[0].Reason != test.reason || len(s.set[0].Conditions) != test.count {
				t.Fatalf("set %+v", s.set)
			}
			last := s.set[0].Conditions[test.count-1]
			if last.Type != v1.PodReadyToStartContainers || last.Status != v1.ConditionTrue || last.ObservedGeneration != 3 {
				t.Fatalf("condition %+v", last)
			}
			if known := test.known[podUID].Conditions; len(known) > 0 && known[0].Status == v1.ConditionTrue {
				t.Fatal("the status manager's own copy was changed")
			}
		})
	}
}

func TestSandboxReadyWithoutTheCondition(t *testing.T) {
	s := &statuses{}
	if err := containerspec.SandboxReady(s, false)(context.Background(), basicPod()); err != nil || len(s.set) > 0 {
		t.Fatalf("set %v, %v", s.set, err)
	}
}
