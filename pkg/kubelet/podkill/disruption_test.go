package podkill

import (
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// disruptions pairs each disruption with the function by which stock writes the same into a status.
var disruptions = map[string]struct {
	ours  Disruption
	stock func(*v1.PodStatus)
}{
	"eviction": {
		ours: Disruption{
			Phase: v1.PodFailed, Reason: "Evicted", Message: "low on memory",
			Conditions: []v1.PodCondition{target("low on memory")},
		},
		stock: func(s *v1.PodStatus) {
			s.Phase, s.Reason, s.Message = v1.PodFailed, "Evicted", "low on memory"
			podutil.UpdatePodCondition(s, new(target("low on memory")))
		},
	},
	"shutdown": {
		ours: Disruption{
			Phase: v1.PodFailed, Reason: "Terminated", Message: "shutdown", Conditions: []v1.PodCondition{target("shutdown")},
			KeepSucceeded: true,
		},
		stock: func(s *v1.PodStatus) {
			if s.Phase != v1.PodSucceeded {
				s.Phase = v1.PodFailed
			}
			s.Reason, s.Message = "Terminated", "shutdown"
			podutil.UpdatePodCondition(s, new(target("shutdown")))
		},
	},
}

func target(message string) v1.PodCondition {
	return DisruptionTarget(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 7}}, message)
}

var statuses = []v1.PodStatus{
	{},
	{Phase: v1.PodRunning, Reason: "old", Message: "old"},
	{Phase: v1.PodSucceeded},
	{Phase: v1.PodFailed, Conditions: []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: v1.DisruptionTarget, Status: v1.ConditionFalse},
	}},
	{Phase: v1.PodFailed, Conditions: []v1.PodCondition{
		{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(1e9, 0)},
	}},
}

// Apply has the effect of stock's functions, except for the time of a transition that happens now, which the status
// manager sets.
func TestApplyEqualsStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time does not advance in the bubble
		now := metav1.Now()
		for name, d := range disruptions {
			for _, status := range statuses {
				want, got := *status.DeepCopy(), *status.DeepCopy()
				d.stock(&want)
				for i := range want.Conditions {
					if want.Conditions[i].LastTransitionTime.Equal(&now) {
						want.Conditions[i].LastTransitionTime = metav1.Time{}
					}
				}
				d.ours.Apply(&got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s of %+v (-stock +ours):\n%s", name, status, diff)
				}
				again := *got.DeepCopy()
				d.ours.Apply(&again)
				if diff := cmp.Diff(got, again); diff != "" {
					t.Errorf("%s twice of %+v (-once +twice):\n%s", name, status, diff)
				}
			}
		}
	})
}

func TestApplyOfNilChangesNothing(t *testing.T) {
	for _, status := range statuses {
		got := *status.DeepCopy()
		(*Disruption)(nil).Apply(&got)
		if diff := cmp.Diff(status, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDisruptionSurvivesJSON(t *testing.T) {
	for name, d := range disruptions {
		data, err := json.Marshal(d.ours)
		if err != nil {
			t.Fatal(err)
		}
		var got Disruption
		if err := json.Unmarshal(data, &got); err != nil || !cmp.Equal(got, d.ours) {
			t.Errorf("%s: %s is read as %+v (%v)", name, data, got, err)
		}
	}
}

func TestApplyDetail(t *testing.T) {
	d := &Disruption{Message: "low on memory", Detail: func() string { return "; fenced" }}
	for _, test := range []struct {
		disruption    *Disruption
		message, want string
	}{
		{d, "low on memory", "low on memory; fenced"},
		{d, "low on memory; earlier detail", "low on memory; fenced"},
		{d, "another message", "another message"},
		{&Disruption{Message: "low on memory"}, "low on memory", "low on memory"},
		{nil, "low on memory", "low on memory"},
	} {
		status := &v1.PodStatus{Message: test.message}
		if test.disruption.ApplyDetail(status); status.Message != test.want {
			t.Errorf("%q becomes %q, want %q", test.message, status.Message, test.want)
		}
	}
}
