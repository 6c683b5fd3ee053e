package arbiter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func (h *history) answer(answers ...Answer) Outcome {
	return h.settle(Answers{Active: h.active, Plugins: answers})
}

// E3: an answer counts when it comes; a plugin that has not answered keeps what it said before, and the bounds of the
// round hold for all answers of the round together.
func TestE3AnswersCountAsTheyCome(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"}, Pod{UID: "b"}, Pod{UID: "c"})
	h.rules.Burst = 2
	h.active = []string{"p", "q", "slow"}
	h.settle(Answers{Active: h.active, Begun: true})
	h.expect("the first answer", uids(h.answer(forced("p", "a")).Requests), "a")
	h.expect("the second answer", uids(h.answer(forced("q", "b", "c")).Requests), "a b")
	h.expect("the next round", uids(h.settle(Answers{Active: h.active, Begun: true}).Requests), "a b c")
	h.active = []string{"q", "slow"}
	h.expect("one plugin gone", uids(h.answer().Requests), "b c")
}

// The clock of a threshold measures between the rounds in which the plugin was asked, not between its answers.
func TestClocksMeasureBetweenRounds(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"})
	h.active = []string{"p"}
	met := hard("p", 10*time.Second)
	for i, late := range []time.Duration{3 * time.Second, time.Second, 0} {
		met.Asked = start.Add(time.Duration(i) * 5 * time.Second)
		h.now = met.Asked.Add(late)
		h.expect(fmt.Sprint("questions in round ", i), fmt.Sprint(len(h.answer(met).Questions)), []string{"0", "0", "1"}[i])
	}
}

// A forced request takes the place of a soft one that waits, so that pods that are not evicted do not keep it waiting.
func TestForcedRequestsTakeThePlacesOfSoftOnes(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"}, Pod{UID: "b"}, Pod{UID: "c"})
	h.rules.MaxInFlight = 2
	soft := Answer{Plugin: "p", Threshold: &Threshold{}, Demand: &Demand{
		Pods: []PodDemand{{UID: "a"}, {UID: "b"}, {UID: "c"}},
	}}
	h.expect("first", uids(h.round(soft).Requests), "a")
	h.expect("second", uids(h.round(soft).Requests), "a b")
	h.expect("full", uids(h.round(soft).Requests), "a b")
	h.expect("forced", uids(h.round(soft, forced("q", "c")).Requests), "c a")
}

// E10: a plugin names its overdue victim again: the next pod of its answer is requested instead.
func TestE10OverdueVictimIsNotNamedAgain(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"}, Pod{UID: "b"})
	q := h.round(hard("p", 0)).Questions[0]
	h.replies(Reply{Question: q, Pods: []types.UID{"a"}})
	*h.pod("a") = Pod{UID: "a", InFlight: true, Overdue: true}
	met := hard("p", 0)
	met.Threshold.Candidates = []types.UID{"a", "b"}
	q = h.round(met).Questions[0]
	h.expect("candidates", fmt.Sprint(q.Candidates), "[b]")
	h.expect("victim", uids(h.replies(Reply{Question: q, Pods: []types.UID{"a", "b"}}).Requests), "b")
}

// The pods of hard thresholds are recorded only while they are asked for or in flight, however many scopes a plugin
// invents.
func TestScopesThatChangeLeaveNothingBehind(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"})
	for i := range 100 {
		met := hard("p", 0)
		met.Threshold.Scope = fmt.Sprint("scope", i, strings.Repeat("x", 1000))
		out := h.round(met)
		h.replies(Reply{Question: out.Questions[0], Pods: []types.UID{"a"}})
		if len(h.state.Forced) != 1 || len(h.state.Clocks) != 1 || len(h.state.Clocks[0].Scope) > maxScope {
			t.Fatalf("round %d: %d victims, %d clocks", i, len(h.state.Forced), len(h.state.Clocks))
		}
	}
}

func reports(plugin string, met bool, name string) Answer {
	return Answer{Plugin: plugin, Demand: &Demand{},
		Threshold: &Threshold{Condition: &ConditionReport{Name: name, Met: met}}}
}

func (h *history) isTrue(out Outcome, name string) string {
	for _, c := range out.Conditions {
		if c.Name == name {
			return fmt.Sprint(c.True)
		}
	}
	return "absent"
}

// Without a transition period a condition is True from one answer that reports it to one that does not, whatever other
// plugins answer meanwhile.
func TestConditionWithoutTransitionPeriod(t *testing.T) {
	h := newHistory(t)
	h.rules.ConditionTransitionPeriod = 0
	h.active = []string{"p", "q"}
	h.answer(reports("p", true, "Hot"))
	h.now = h.now.Add(time.Second)
	h.expect("another plugin answers", h.isTrue(h.answer(reports("q", false, "Other")), "Hot"), "true")
	h.expect("no longer met", h.isTrue(h.answer(reports("p", false, "Hot")), "Hot"), "false")
}

// E16: a condition of an earlier run stays True until a plugin reports on it or the transition period is over. One that
// was False is removed an hour after that.
func TestE16RestoredConditions(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer Answer
		after  time.Duration
		want   string
	}{
		{"no plugin reports", reports("p", true, "Other"), 4 * time.Minute, "true"},
		{"transition period", reports("p", true, "Other"), 5 * time.Minute, "false"},
		{"reported met", reports("p", true, "Hot"), time.Minute, "true"},
		{"reported not met", reports("p", false, "Hot"), time.Minute, "false"},
		{"an hour after", reports("p", true, "Other"), 65 * time.Minute, "absent"},
	} {
		h := newHistory(t)
		h.active = []string{"p"}
		earlier := []RestoredCondition{{Name: "Hot", True: true}, {Name: "Old", Since: start.Add(-time.Hour)}}
		h.state = h.state.Restore(earlier, h.rules, start)
		h.now = start.Add(tc.after)
		out := h.answer(tc.answer)
		h.expect(tc.name, h.isTrue(out, "Hot"), tc.want)
		h.expect("False for an hour", h.isTrue(out, "Old"), "absent")
	}
}

// A condition is restored while it is True from an earlier run and no plugin has reported on it. Its effects are known
// from then on.
func TestE16ConditionIsRestoredUntilItIsReported(t *testing.T) {
	h := newHistory(t)
	h.active = []string{"p"}
	h.state = h.state.Restore([]RestoredCondition{{Name: "Hot", True: true}, {Name: "Cold", Since: start}}, h.rules, start)
	show := func(out Outcome) (text string) {
		for _, c := range out.Conditions {
			text += fmt.Sprintf("%s %v %v %v; ", c.Name, c.True, c.Restored, c.Effects)
		}
		return text
	}
	met := reports("p", true, "Hot")
	met.Threshold.Condition.Effects = []string{"NoSchedule"}
	h.expect("another condition", show(h.answer(reports("p", false, "Other"))), "Cold false false []; Hot true true []; ")
	h.expect("reported", show(h.answer(met)), "Cold false false []; Hot true false [NoSchedule]; ")
	h.now = start.Add(4 * time.Minute)
	h.expect("no longer met", show(h.answer(reports("p", false, "Hot"))),
		"Cold false false []; Hot true false [NoSchedule]; ")
}

// Plugins that report more conditions than there are places cannot keep another one from reporting its own.
func TestConditionsOfManyPlugins(t *testing.T) {
	h := newHistory(t)
	for i := range 200 {
		h.now = h.now.Add(5 * time.Second)
		h.active = []string{"honest"}
		for liar := range 5 {
			name := fmt.Sprint("liar", liar)
			h.active = append(h.active, name)
			h.answer(reports(name, true, fmt.Sprint("C", liar, "-", i)))
		}
		out := h.answer(reports("honest", true, "Hot"))
		h.expect("honest condition", h.isTrue(out, "Hot"), "true")
		if len(out.Conditions) > maxConditions {
			t.Fatalf("%d conditions", len(out.Conditions))
		}
	}
}

// The reason of a pod that many plugins name is bounded.
func TestReasonIsBounded(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"})
	var answers []Answer
	for i := range 10 {
		a := forced(fmt.Sprint("p", i), "a")
		a.Demand.Pods[0].Reason = strings.Repeat("é", 2000)
		answers = append(answers, a)
	}
	if n := len(h.round(answers...).Requests[0].Reason); n > maxReason || n < maxReason-10 {
		t.Errorf("%d bytes", n)
	}
}
