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
