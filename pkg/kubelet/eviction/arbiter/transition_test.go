package arbiter

import (
	"testing"
	"time"
)

// A condition that has become False stays so when the transition period becomes longer, also one of an earlier run.
func TestLongerTransitionPeriodRevivesNoCondition(t *testing.T) {
	h := newHistory(t)
	h.state = h.state.Restore([]RestoredCondition{{Name: "Cold", Since: start}, {Name: "Old", True: true}}, h.rules, h.now)
	h.active = []string{"p"}
	h.answer(reports("p", true, "Hot"))
	h.now = h.now.Add(6 * time.Minute)
	h.answer(reports("p", false, "Hot"))
	h.rules.ConditionTransitionPeriod = time.Hour
	out := h.answer(reports("p", false, "Hot"))
	for _, name := range []string{"Hot", "Cold", "Old"} {
		h.expect(name, h.isTrue(out, name), "false")
	}
	h.expect("met again", h.isTrue(h.answer(reports("p", true, "Hot")), "Hot"), "true")
}

// Reports on a condition of the Node end none of the CustomNodeResource that has the same name, and the other way
// round.
func TestRestoredConditionsOfTheSameName(t *testing.T) {
	restored := []RestoredCondition{
		{Name: "Hot", True: true}, {Name: "Hot", Resource: true, True: true, Effects: []string{"reclaimed_cores/NoExecute"}},
	}
	for _, resource := range []bool{false, true} {
		for _, met := range []bool{false, true} {
			h := newHistory(t)
			h.state = h.state.Restore(restored, h.rules, h.now)
			h.active = []string{"p"}
			report := reports("p", met, "Hot")
			report.Threshold.Condition.Resource = resource
			for _, c := range h.answer(report).Conditions {
				want := c.Resource != resource || met
				if ofEarlierRun := c.Resource != resource; c.True != want || c.Restored != ofEarlierRun {
					t.Errorf("reported of the resource %t, met %t: %+v", resource, met, c)
				}
			}
		}
	}
}
