package eviction

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Reasons of events. The first two are stock's.
const (
	eventThresholdMet = "EvictionThresholdMet"
	eventEvicted      = policy.ReasonEvicted
	eventHastened     = "EvictionHastened"
)

// reporter tells users what happens: events, metrics, logs.
type reporter struct {
	recorder record.EventRecorder
	node     *v1.ObjectReference
	// every is the least time between two events about the same signal.
	every time.Duration
	mu    sync.Mutex
	told  [snapshot.NumSignals]time.Time
}

// starved says what the node runs out of, and how old the figures are that pods are evicted for.
func (r *reporter) starved(ctx context.Context, s *snapshot.Snapshot, d *policy.Decision) {
	logger := klog.FromContext(ctx)
	for i := range d.Starved {
		st := &d.Starved[i]
		logger.V(2).Info("Eviction manager: resource is starved", "signal", st.Signal, "hard", st.Hard,
			"amount", st.Amount, "inFlight", st.InFlight, "chosen", st.Chosen, "spared", st.Spared, "outcome", st.Outcome)
		if st.Acting() && r.due(st.Signal, d.At) {
			logger.Info("Eviction manager: attempting to reclaim", "resourceName", st.Resource(), "outcome", st.Outcome)
			r.recorder.Eventf(r.node, v1.EventTypeWarning, eventThresholdMet, "Attempting to reclaim %s", st.Resource())
		}
		if o := s.Signals[st.Signal]; st.Outcome == policy.Evict && !o.At.IsZero() {
			metrics.EvictionStatsAge.WithLabelValues(st.Signal.String()).Observe(d.At.Sub(o.At).Seconds())
		}
	}
}

func (r *reporter) due(sig snapshot.Signal, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.told[sig]; !last.IsZero() && now.Sub(last) < r.every {
		return false
	}
	r.told[sig] = now
	return true
}

// evicting is said before the pod is stopped.
func (r *reporter) evicting(ctx context.Context, v *policy.Victim) {
	pod, reason := v.Pod.Object, eventEvicted
	if v.Hasten {
		reason = eventHastened
	}
	r.recorder.AnnotatedEventf(pod, v.Annotations, v1.EventTypeWarning, reason, "%s", v.Message)
	klog.FromContext(ctx).Info("Eviction manager: evicting pod", "pod", klog.KObj(pod), "podUID", pod.UID, "cause", v.Metric,
		"graceSeconds", v.GraceSeconds, "hastened", v.Hasten, "message", v.Message)
}

// evicted counts what has died. A pod that was being stopped already is not an eviction.
func (r *reporter) evicted(ctx context.Context, v *policy.Victim, err error) {
	logger := klog.FromContext(ctx)
	if err != nil {
		logger.Error(err, "Eviction manager: pod failed to evict", "pod", klog.KObj(v.Pod.Object))
		return
	}
	logger.Info("Eviction manager: pod is evicted successfully", "pod", klog.KObj(v.Pod.Object))
	if !v.Hasten {
		metrics.Evictions.WithLabelValues(v.Metric).Inc()
	}
}
