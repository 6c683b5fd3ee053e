package arbiter

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A pod that is given notice takes no place, and nothing of the limits of a round; force evicts it.
func TestNotices(t *testing.T) {
	h := newHistory(t, Pod{UID: "a", NotifyOnly: true}, Pod{UID: "b", NotifyOnly: true}, Pod{UID: "c", Priority: 1})
	h.rules.MaxInFlight, h.rules.Burst = 1, 1
	ask := soft("p", "b", "a", "c")
	ask.Demand.Pods[0].GraceSeconds = new(int64(0))
	out := h.round(ask, soft("q", "a"))
	h.expect("requests", uids(out.Requests), "c")
	since := h.now
	want := []Notice{
		{UID: "a", Plugins: []string{"p", "q"}, Scope: "force", Reason: "p: r; q: r", Since: since},
		{UID: "b", Plugins: []string{"p"}, Scope: "force", Reason: "p: r", Since: since, GraceSeconds: new(int64(1))},
	}
	if diff := cmp.Diff(want, out.Notices); diff != "" {
		t.Error(diff)
	}
	out = h.round(ask, forced("q", "b"))
	h.expect("forced", uids(out.Requests), "b")
	want[0].Plugins, want[0].Reason = []string{"p"}, "p: r"
	if diff := cmp.Diff(want[:1], out.Notices); diff != "" {
		t.Error(diff)
	}
	h.pod("b").InFlight = true
	if out = h.round(soft("p", "b")); len(out.Notices)+len(out.Requests) != 0 {
		t.Errorf("the pod is being evicted: %+v", out)
	}
}
