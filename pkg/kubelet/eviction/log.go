package eviction

import (
	"context"

	"k8s.io/klog/v2"
)

// logSink writes the log. Each line has the number of its decision, and those about a pod its name and UID.
type logSink struct{}

// Name implements Sink.
func (logSink) Name() string { return "log" }

// Round implements Sink.
func (logSink) Round(ctx context.Context, r *Round) {
	for i := range r.Notices {
		logNotice(klog.FromContext(ctx), &r.Notices[i], r.Decision.Number)
	}
	for i := range r.Decision.Starved {
		st := &r.Decision.Starved[i]
		klog.FromContext(ctx).V(2).Info("Eviction manager: resource is scarce", "decision", r.Decision.Number,
			"signal", st.Signal, "hard", st.Hard, "amount", st.Amount, "inFlight", st.InFlight, "chosen", st.Chosen,
			"spared", st.Spared, "outcome", st.Outcome)
	}
}

func logNotice(logger klog.Logger, n *Notice, decision uint64) {
	c := &n.Condition
	switch n.Kind {
	case ConditionChanged:
		logger.Info("Eviction manager: node condition changed", "decision", decision, "condition", c.Type, "status", c.True)
	case Reclaiming:
		logger.Info("Eviction manager: attempting to reclaim", "decision", decision, "resourceName", n.Need.Resource(),
			"outcome", n.Need.Outcome)
	case SignalsUnknown:
		logger.Error(nil, "Eviction manager: signals are unknown", "decision", decision, "condition", c.Type,
			"status", c.True, "signals", c.Blind, "since", n.Since)
	case SignalsKnown:
		logger.Info("Eviction manager: all signals are known again", "decision", decision, "condition", c.Type)
	case RuntimeSilent:
		logger.Error(nil, "Eviction manager: the container runtime does not report pod stats", "decision", decision,
			"since", n.Since)
	case RuntimeAnswers:
		logger.Info("Eviction manager: pod stats available again", "decision", decision)
	case CountersUnreadable:
		logger.Error(n.Err, "Eviction manager: memory counters cannot be read", "decision", decision, "since", n.Since)
	case CountersReadable:
		logger.Info("Eviction manager: memory counters can be read again", "decision", decision)
	case DryRunVictim:
		v := n.Victim
		logger.Info("Eviction manager: dry run, pod would be evicted", "decision", decision,
			"pod", klog.KRef(v.Pod.Namespace, v.Pod.Name), "podUID", v.Pod.UID, "cause", v.Cause.Name(), "kind", v.Cause.Kind,
			"message", v.Message)
	}
}

// Result implements Sink.
func (logSink) Result(ctx context.Context, r *Result) {
	logger, v := klog.FromContext(ctx), r.Victim
	if r.Kind == ReclaimEnded {
		if r.Err != nil {
			logger.Error(r.Err, "Eviction manager: node-level reclaim failed in part", "decision", r.Decision,
				"signal", r.Reclaim.Signal, "device", r.Reclaim.Device)
		}
		return
	}
	if r.Kind == PodReleased {
		logger = logger.V(2)
	}
	pod, uid := klog.KRef(v.Pod.Namespace, v.Pod.Name), v.Pod.UID
	switch r.Kind {
	case KillAccepted:
		logger.Info("Eviction manager: evicting pod", "decision", r.Decision, "pod", pod, "podUID", uid,
			"cause", v.Cause.Name(), "graceSeconds", v.GraceSeconds, "answer", r.Answer, "message", v.Message)
	case PodOverdue:
		logger.Info("Eviction manager: evicted pod is still terminating", "decision", r.Decision, "pod", pod, "podUID", uid,
			"graceSeconds", v.GraceSeconds)
	case KillFailed:
		logger.Info("Eviction manager: stopped waiting for the end of a pod", "decision", r.Decision, "pod", pod,
			"podUID", uid, "err", r.Err)
	case PodStopped:
		logger.Info("Eviction manager: pod is evicted successfully", "decision", r.Decision, "pod", pod, "podUID", uid)
	case KillRefused:
		logger.Info("Eviction manager: the agent stops, pod is not evicted", "decision", r.Decision, "pod", pod,
			"podUID", uid)
	case PodGone:
		logger.Info("Eviction manager: pod is gone and is not evicted", "decision", r.Decision, "pod", pod, "podUID", uid)
	case PodReleased:
		logger.Info("Eviction manager: pod is cleaned up", "decision", r.Decision, "pod", pod, "podUID", uid)
	case ReclaimEnded: // above
	}
}
