package nodestatus

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestBlindConditions: a signal is lost while the condition is False, then True, and comes back.
func TestBlindConditions(t *testing.T) {
	lost := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for kind, set := range map[v1.NodeConditionType]func(*world, bool){
		v1.NodeMemoryPressure: func(w *world, on bool) { w.memory = on },
		v1.NodeDiskPressure:   func(w *world, on bool) { w.disk = on },
		v1.NodePIDPressure:    func(w *world, on bool) { w.pid = on },
	} {
		t.Run(string(kind), func(t *testing.T) {
			s, w := newAPIServer(nil), newWorld()
			var blind []string
			u := newUpdater(t, s, w, func(c *Config) {
				c.Blind = func(asked v1.NodeConditionType) ([]string, time.Time) {
					if asked != kind {
						return nil, time.Time{}
					}
					return blind, lost
				}
			})
			expect := func(what string, status v1.ConditionStatus, seeing bool) {
				t.Helper()
				u.SyncNow(t.Context())
				words := wordings[kind][status]
				if !seeing {
					words.message += " as far as is known: a, b cannot be seen since 2026-01-01T00:00:00Z"
				}
				if !seeing && status == v1.ConditionFalse {
					words.reason = "EvictionSignalUnknown"
				}
				if c := condition(s.current(), kind); c.Status != status || c.Reason != words.reason || c.Message != words.message {
					t.Errorf("%s: %s %s %q, want %+v", what, c.Status, c.Reason, c.Message, words)
				}
			}
			expect("at first", v1.ConditionFalse, true)
			blind = []string{"a", "b"}
			expect("blind", v1.ConditionFalse, false)
			since := condition(s.current(), kind).LastTransitionTime
			blind = nil
			expect("seeing again", v1.ConditionFalse, true)
			if now := condition(s.current(), kind).LastTransitionTime; !now.Equal(&since) {
				t.Error("becoming blind counts as a transition")
			}
			set(w, true)
			expect("pressure", v1.ConditionTrue, true)
			blind = []string{"a", "b"}
			expect("blind under pressure", v1.ConditionTrue, false)
			set(w, false)
			expect("one signal is back and clear", v1.ConditionFalse, false)
			blind = nil
			expect("all is well", v1.ConditionFalse, true)
		})
	}
}

// TestBlindWordsOfAnEarlierRunGo: the agent was restarted while it was blind, and sees now.
func TestBlindWordsOfAnEarlierRunGo(t *testing.T) {
	c := v1.NodeCondition{
		Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: reasonBlind,
		Message: "kubelet has no disk pressure as far as is known: x cannot be seen since y",
	}
	describe(&c, nil, time.Time{})
	if c.Reason != "KubeletHasNoDiskPressure" || c.Message != "kubelet has no disk pressure" {
		t.Errorf("%+v", c)
	}
	foreign := v1.NodeCondition{
		Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "X", Message: "what somebody else wrote",
	}
	if describe(&foreign, nil, time.Time{}); foreign.Message != "what somebody else wrote" {
		t.Errorf("%+v", foreign)
	}
}
