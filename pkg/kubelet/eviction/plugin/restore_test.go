package plugin

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

// A condition that is restored while answers are settled is not withdrawn in between.
func TestE16RestoredWhileAnswersAreSettled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, options(), map[string]Plugin{"p": forcing("a")}, pod("a"))
		r.Driver.config.Wake = func() {
			r.Restore([]v1.NodeCondition{{Type: arbiter.ConditionPrefix + "Hot", Status: v1.ConditionTrue}})
		}
		var withdrawn bool
		r.Driver.config.ConditionsChanged = func() { withdrawn = withdrawn || r.conditionsNow() != "Hot=true" }
		r.start()
		defer r.stop()
		r.expect("conditions, withdrawn", text(r.conditionsNow(), withdrawn), "Hot=true false")
	})
}

// E16: conditions of the CustomNodeResource are taken over with their effects, and replaced by what plugins report.
func TestE16ResourceConditionsAreRestored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, options(), nil)
		r.RestoreResource([]ResourceCondition{{Name: "Hot", Effects: []string{"reclaimed_cores/NoSchedule", "Nonsense"}}})
		r.start()
		defer r.stop()
		r.expect("restored", text(r.ResourceConditions()), "[{Hot [reclaimed_cores/NoSchedule]}]")
		if list := r.Conditions(); len(list) > 0 {
			t.Errorf("conditions of the Node: %v", list)
		}
	})
}
