package kubelet

import (
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/answers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/conditions"
)

// Conditions of the CustomNodeResource are those of an earlier run of the agent if it ended less than an hour ago.
func TestConditionsOfAnEarlierRun(t *testing.T) {
	contents, err := conditions.Contents([]conditions.Condition{
		{Name: "Hot", Effects: []string{"reclaimed_cores/NoSchedule"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for age, want := range map[time.Duration]int{time.Minute: 1, answers.MaxAge + time.Minute: 0} {
		b := assembled(t, nil, nil)
		at, eviction := time.Now().Add(-age), b.plugins.eviction
		b.plugins.reporter.restore([]answers.Answer{{
			Key: answers.Key{Plugin: conditions.Name}, Contents: contents, Received: at, Confirmed: at,
		}}, eviction)
		if list := eviction.driver.ResourceConditions(); len(list) != want || eviction.required.required != (want > 0) {
			t.Errorf("after %v the conditions are %+v, the driver is required: %t", age, list, eviction.required.required)
		}
	}
}
