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
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
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
			metrics.EvictionStatsAge.WithLabelValues(st.Signal.String()).Observe(max(0, d.At.Sub(o.At).Seconds()))
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

// evicting reports a request that the pod workers have accepted. Only one that began the termination is an eviction;
// one that made a pod terminate sooner is reported as that, and one that changed nothing is not worth an event.
func (r *reporter) evicting(ctx context.Context, v *policy.Victim, answer podkill.Answer) {
	pod := v.Pod.Object
	if reason, worth := eventReasons[answer]; worth {
		r.recorder.AnnotatedEventf(pod, v.Annotations, v1.EventTypeWarning, reason, "%s", v.Message)
	}
	klog.FromContext(ctx).Info("Eviction manager: evicting pod", "pod", klog.KObj(pod), "podUID", pod.UID, "cause", v.Metric,
		"graceSeconds", v.GraceSeconds, "answer", answer, "message", v.Message)
}

// eventReasons are the reasons of events about accepted requests.
var eventReasons = map[podkill.Answer]string{podkill.Begun: eventEvicted, podkill.Hastened: eventHastened}

// ended reports the end of a request. evicted is true when it is the end of a pod whose termination an eviction began:
// those are counted.
func (r *reporter) ended(ctx context.Context, v *policy.Victim, ending podkill.Ending, evicted bool) {
	logger := klog.FromContext(ctx).WithValues("pod", klog.KObj(v.Pod.Object), "podUID", v.Pod.UID)
	if evicted {
		metrics.Evictions.WithLabelValues(v.Metric).Inc()
	}
	switch ending.Outcome {
	case podkill.Stopped:
		logger.Info("Eviction manager: pod is evicted successfully")
	case podkill.Overdue:
		logger.Info("Eviction manager: evicted pod is still terminating", "graceSeconds", v.GraceSeconds)
	case podkill.Failed:
		logger.Info("Eviction manager: stopped waiting for the end of a pod", "reason", ending.Err)
	}
}
