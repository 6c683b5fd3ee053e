package eviction

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

const (
	eventDryRun = "EvictionDryRun"
	// dryRunEvery is the least time between two events about the same threshold.
	dryRunEvery = time.Minute
	// mostCounted bounds how many pods are remembered for one cause. Beyond that counting begins anew.
	mostCounted = 4096
)

var (
	dryRunTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "plimsoll_eviction_dry_run_total",
		Help:           "Pods that would have been evicted if their cause were not in dry run. A pod counts once for as long as the cause lasts.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"signal", "kind"})

	registerDryRunMetric = sync.OnceFunc(func() { legacyregistry.MustRegister(dryRunTotal) })
)

// cause is what a pod would be evicted for, by the names of metrics.
type cause struct{ signal, kind string }

func causeOf(v *policy.Victim) cause {
	switch {
	case v.Signal.String() != v.Metric:
		return cause{v.Metric, "limit"}
	case v.Hard:
		return cause{v.Metric, "hard"}
	}
	return cause{v.Metric, "soft"}
}

// rehearsals tell users what thresholds in dry run would have done. They belong to the loop.
type rehearsals struct {
	told map[cause]time.Time
	// counted are the pods that are counted already.
	counted map[cause]map[types.UID]bool
}

func (r *rehearsals) report(ctx context.Context, to *reporter, d *policy.Decision) {
	dry := &d.DryRun
	if len(dry.Starved) == 0 && len(dry.LocalStorage) == 0 && len(r.counted) == 0 {
		return
	}
	registerDryRunMetric()
	r.forget(dry)
	for _, victims := range [][]policy.Victim{dry.LocalStorage, dry.Victims} {
		for i := range victims {
			r.count(&victims[i])
			r.tell(ctx, to, d, &victims[i])
		}
	}
}

// forget drops what is over: a signal that is not starved any more. Limits are looked at anew each time.
func (r *rehearsals) forget(dry *policy.DryRun) {
	lasts := map[cause]bool{}
	for i := range dry.Starved {
		st := &dry.Starved[i]
		lasts[causeOf(&policy.Victim{Signal: st.Signal, Metric: st.Signal.String(), Hard: st.Hard})] = true
	}
	for i := range dry.LocalStorage {
		lasts[causeOf(&dry.LocalStorage[i])] = true
	}
	for c := range r.counted {
		if !lasts[c] {
			delete(r.counted, c)
		}
	}
}

func (r *rehearsals) count(v *policy.Victim) {
	c := causeOf(v)
	if r.counted[c][v.Pod.UID] {
		return
	}
	if r.counted == nil {
		r.counted = map[cause]map[types.UID]bool{}
	}
	if r.counted[c] == nil || len(r.counted[c]) >= mostCounted {
		r.counted[c] = map[types.UID]bool{}
	}
	r.counted[c][v.Pod.UID] = true
	dryRunTotal.WithLabelValues(c.signal, c.kind).Inc()
}

func (r *rehearsals) tell(ctx context.Context, to *reporter, d *policy.Decision, v *policy.Victim) {
	c := causeOf(v)
	if last, ok := r.told[c]; ok && d.At.Sub(last) < dryRunEvery {
		return
	}
	if r.told == nil {
		r.told = map[cause]time.Time{}
	}
	r.told[c] = d.At
	first := ""
	for i := range d.DryRun.Reclaims {
		if d.DryRun.Reclaims[i].Signal == v.Signal {
			first = "reclaim from the node first and, if that is not enough, "
		}
	}
	klog.FromContext(ctx).Info("Eviction manager: dry run, pod would be evicted", "pod", klog.KObj(v.Pod.Object), "podUID", v.Pod.UID,
		"cause", c.signal, "kind", c.kind, "message", v.Message)
	to.recorder.Eventf(to.node, v1.EventTypeNormal, eventDryRun, "Dry run of %s (%s): would %sevict pod %s/%s because: %s",
		c.signal, c.kind, first, v.Pod.Object.Namespace, v.Pod.Object.Name, v.Message)
}
