package arbiter

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// E7: a pod that plugins may no longer name, since its labels or the options have changed, is not requested any more:
// neither for a threshold, whose pods are not named again in each round, nor while the plugin has not answered.
func TestE7PodIsProtectedAfterItWasNamed(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"}, Pod{UID: "b"})
	q := h.round(hard("p", 0), forced("q", "b")).Questions[0]
	h.expect("both", uids(h.replies(Reply{Question: q, Pods: []types.UID{"a"}}).Requests), "b a")
	h.pod("a").Excluded, h.pod("b").Excluded = SkipLabel, SkipAnnotation
	h.expect("at once", uids(h.settle(Answers{Active: h.active}).Requests), "")
	h.expect("in the next round", uids(h.round(hard("p", 0), Answer{Plugin: "q"}).Requests), "")
}

// E15: a plugin that leaves a pod its own grace period asks for that. Another one cannot lengthen it.
func TestE15ThePodsOwnGraceIsNotLengthened(t *testing.T) {
	for _, tc := range []struct {
		own, asked int64
		want       *int64
	}{{30, 600, nil}, {30, 30, nil}, {30, 5, new(int64(5))}} {
		for _, force := range []bool{true, false} {
			h := newHistory(t, Pod{UID: "a", GraceSeconds: tc.own})
			ask := func(plugin string, grace *int64) Answer {
				return Answer{Plugin: plugin, Demand: &Demand{Pods: []PodDemand{{UID: "a", Force: force, GraceSeconds: grace}}}}
			}
			first := h.round(ask("p", nil), ask("q", &tc.asked)).Requests[0]
			second := h.round(ask("p", &tc.asked), ask("q", nil)).Requests[0]
			if diff := cmp.Diff([]*int64{tc.want, tc.want}, []*int64{first.GraceSeconds, second.GraceSeconds}); diff != "" {
				t.Errorf("own %d, asked %d: %s", tc.own, tc.asked, diff)
			}
		}
	}
}

// The order of one pod in an answer that names it twice makes no difference.
func TestPodNamedTwiceInOneAnswer(t *testing.T) {
	twice := []PodDemand{{UID: "a", Reason: "x", Force: true}, {UID: "a", Reason: "y"}}
	for range 2 {
		slices.Reverse(twice)
		h := newHistory(t, Pod{UID: "a"})
		h.expect("reason", h.round(Answer{Plugin: "p", Demand: &Demand{Pods: twice}}).Requests[0].Reason, "p: x")
	}
}
