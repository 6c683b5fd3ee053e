package nodestatus

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// A signal becomes unknown while the condition is False, then while it is True, and is known again after each.
func TestConditionsWithUnknownSignals(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for kind, set := range map[v1.NodeConditionType]func(*world, bool){
		v1.NodeMemoryPressure: func(w *world, on bool) { w.memory = on },
		v1.NodeDiskPressure:   func(w *world, on bool) { w.disk = on },
		v1.NodePIDPressure:    func(w *world, on bool) { w.pid = on },
	} {
		t.Run(string(kind), func(t *testing.T) {
			s, w := newAPIServer(nil), newWorld()
			var unknown []string
			u := newUpdater(t, s, w, func(c *Config) {
				c.UnknownSignals = func(t v1.NodeConditionType) ([]string, time.Time) {
					if t != kind {
						return nil, time.Time{}
					}
					return unknown, since
				}
			})
			expect := func(what string, status v1.ConditionStatus, known bool) {
				t.Helper()
				u.SyncNow(t.Context())
				text := stockTexts[kind][status]
				if !known {
					text.message += " as far as is known: a, b cannot be seen since 2026-01-01T00:00:00Z"
				}
				if !known && status == v1.ConditionFalse {
					text.reason = "EvictionSignalUnknown"
				}
				if c := condition(s.current(), kind); c.Status != status || c.Reason != text.reason || c.Message != text.message {
					t.Errorf("%s: %s %s %q, want %+v", what, c.Status, c.Reason, c.Message, text)
				}
			}
			expect("in the beginning", v1.ConditionFalse, true)
			unknown = []string{"a", "b"}
			expect("unknown signals", v1.ConditionFalse, false)
			transition := condition(s.current(), kind).LastTransitionTime
			unknown = nil
			expect("all signals known again", v1.ConditionFalse, true)
			if now := condition(s.current(), kind).LastTransitionTime; !now.Equal(&transition) {
				t.Error("an unknown signal changes the transition time")
			}
			set(w, true)
			expect("pressure", v1.ConditionTrue, true)
			unknown = []string{"a", "b"}
			expect("unknown signals under pressure", v1.ConditionTrue, false)
			set(w, false)
			expect("pressure ends", v1.ConditionFalse, false)
			unknown = nil
			expect("all signals known", v1.ConditionFalse, true)
		})
	}
}

// The message of an earlier run, in which a signal was unknown, is replaced when all signals are known.
func TestMessageOfAnEarlierRunIsReplaced(t *testing.T) {
	c := v1.NodeCondition{
		Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: reasonSignalUnknown,
		Message: "kubelet has no disk pressure as far as is known: x cannot be seen since y",
	}
	setText(&c, nil, time.Time{})
	if c.Reason != "KubeletHasNoDiskPressure" || c.Message != "kubelet has no disk pressure" {
		t.Errorf("%+v", c)
	}
	foreign := v1.NodeCondition{
		Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "X", Message: "message of another owner",
	}
	if setText(&foreign, nil, time.Time{}); foreign.Message != "message of another owner" {
		t.Errorf("%+v", foreign)
	}
}
