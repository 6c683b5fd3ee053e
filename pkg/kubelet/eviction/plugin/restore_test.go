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
