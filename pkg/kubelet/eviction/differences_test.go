package eviction

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// observer watches a sequence for inputs on which stock and we are meant to differ. Every rule here is an entry of
// docs/eviction-differences.md and looks at inputs only: figures, pods, configuration, time.
type observer struct {
	play       *play
	thresholds []policy.Threshold
	v          verdict
	// seen is what was met in earlier steps, by threshold.
	seen map[int]*history
	used map[types.UID][]int64
}

type history struct {
	met   bool
	since time.Time
	ever  bool
}

func (o *observer) rule(name string) { o.v.rules[name] = true }

func (o *observer) before(sc *scene) {
	if o.seen == nil {
		o.seen, o.used = map[int]*history{}, map[types.UID][]int64{}
	}
	signals := snapshot.FromSummary(sc.summary)
	if sc.err != nil {
		o.rule("D10 a failed summary is not the end of the round")
	}
	starved := map[string]bool{}
	kinds := map[string]bool{}
	for i := range o.thresholds {
		o.follow(i, signals, starved, kinds)
	}
	if len(starved) > 1 {
		o.rule("D1, D2 more than one need: total order, and reclaim is judged by its own signal")
	}
	for kind := range kinds {
		if kinds["hard "+strings.TrimPrefix(kind, "soft ")] && strings.HasPrefix(kind, "soft ") {
			o.rule("D1 hard wins over soft")
		}
	}
	if len(starved) == 0 {
		return
	}
	if len(sc.unkillable) > 0 {
		o.rule("D3 a failed kill brings the next victim, and is not retried at once")
	}
	for _, pod := range sc.pods {
		if o.play.usage[pod.UID].missing {
			o.rule("D8 unknown usage is not the worst")
		}
	}
}

// follow looks at one threshold.
func (o *observer) follow(i int, signals [snapshot.NumSignals]snapshot.Observation, starved, kinds map[string]bool) {
	t := &o.thresholds[i]
	h := o.seen[i]
	if h == nil {
		h = &history{}
		o.seen[i] = h
	}
	ob := signals[t.Signal]
	if !ob.Known() {
		if h.ever {
			o.rule("D10 a blind signal keeps its condition")
		}
		return
	}
	met := ob.Available < t.Quantity(ob.Capacity).Value()
	if met && t.Soft && h.ever && !h.met {
		o.rule("D16 the grace clock pauses")
	}
	if met && !t.Soft {
		o.rule_hardAdmission(t)
	}
	h.met, h.ever = met, h.ever || met
	if met {
		starved[string(t.Signal.Resource())] = true
		kind := "hard "
		if t.Soft {
			kind = "soft "
		}
		kinds[kind+string(t.Signal.Condition())] = true
	}
}
