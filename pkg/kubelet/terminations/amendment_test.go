package terminations

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// amendments are those that there are: of an eviction, of the node's shutdown.
var amendments = map[string]func(*v1.PodStatus){
	"eviction": func(s *v1.PodStatus) {
		s.Phase, s.Reason, s.Message = v1.PodFailed, "Evicted", "low on memory"
		podutil.UpdatePodCondition(s, &v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet", Message: "low on memory"})
	},
	"shutdown": func(s *v1.PodStatus) {
		if s.Phase != v1.PodSucceeded {
			s.Phase = v1.PodFailed
		}
		s.Reason, s.Message = "Terminated", "Pod was terminated in response to imminent node shutdown."
		podutil.UpdatePodCondition(s, &v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"})
	},
}

// What is written down does to every status what the function does.
func TestAmendmentIsTheFunction(t *testing.T) {
	before := []v1.PodStatus{
		{},
		{Phase: v1.PodRunning, Reason: "old", Message: "old"},
		{Phase: v1.PodSucceeded},
		{Phase: v1.PodFailed, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: v1.DisruptionTarget, Status: v1.ConditionFalse}}},
	}
	synctest.Test(t, func(t *testing.T) { // in a bubble all of it happens at the same time
		for name, amend := range amendments {
			a := AmendmentOf(amend)
			for _, status := range before {
				want, got := *status.DeepCopy(), *status.DeepCopy()
				amend(&want)
				a.Apply(&got)
				if !apiequality.Semantic.DeepEqual(got, want) {
					t.Errorf("%s of %+v\ngives %+v\nwant %+v", name, status, got, want)
				}
				again := *got.DeepCopy()
				a.Apply(&again)
				if !apiequality.Semantic.DeepEqual(got, again) {
					t.Errorf("%s twice of %+v gives %+v", name, status, again)
				}
			}
		}
	})
	if AmendmentOf(nil) != nil {
		t.Error("no function is no amendment")
	}
}
