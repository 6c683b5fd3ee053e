package eviction

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// logSink writes log lines. Each has the number of its decision, and those about a pod its name and UID.
type logSink struct{}

// Name implements Sink.
func (logSink) Name() string { return "log" }

// NeedsRound implements roundFilter.
func (logSink) NeedsRound(r *Round) bool { return len(r.Notices) > 0 || len(r.Decision.Needs) > 0 }

// Round implements Sink.
func (logSink) Round(ctx context.Context, r *Round) {
	logger := klog.FromContext(ctx)
	for i := range r.Notices {
		logNotice(logger, &r.Notices[i], r.Decision.Number)
	}
	if logger = logger.V(2); !logger.Enabled() {
		return
	}
	for i := range r.Decision.Needs {
		st := &r.Decision.Needs[i]
		logger.Info("Eviction manager: decided about a scarce resource", "decision", r.Decision.Number,
			"signal", st.Signal, "hard", st.Hard, "amount", st.Amount, "inFlight", st.InFlight, "chosen", st.Chosen,
			"passedOver", st.PassedOver, "outcome", st.Outcome)
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
			"status", c.True, "signals", c.UnknownSignals, "since", n.Since)
	case SignalsKnown:
		logger.Info("Eviction manager: all signals are known again", "decision", decision, "condition", c.Type)
	case RuntimeSilent:
		logger.Error(nil, "Eviction manager: container runtime does not report pod stats", "decision", decision,
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
			logger.Error(r.Err, "Eviction manager: node-level reclaim failed", "decision", r.Decision,
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
			"cause", v.Cause.Name(), "killer", v.Killer, "gracePeriodSeconds", v.GraceSeconds, "answer", r.Answer, "message",
			v.Message)
	case KillBlocked, KillWithdrawn:
		logAttempt(logger, r)
	case PodFenced:
		logger.Info("Eviction manager: evicted pod got a limit that stops its growth (fence)", "decision", r.Decision,
			"pod", pod, "podUID", uid, "limit", r.Fence.At, "isOfPIDs", r.Fence.PIDs, "err", r.Err)
	case FenceEnded:
		logger.Info("Eviction manager: fenced pod has ended", "decision", r.Decision, "pod", pod, "podUID", uid, "outcome",
			r.Fence.Outcome, "killReason", r.Fence.Reason, "err", r.Err)
	case PodOverdue:
		logger.Info("Eviction manager: evicted pod is still terminating", "decision", r.Decision, "pod", pod, "podUID", uid,
			"gracePeriodSeconds", v.GraceSeconds)
	case KillFailed:
		if v.Killer != snapshot.PodWorker {
			logAttempt(logger, r)
			return
		}
		logger.Info("Eviction manager: stopped waiting for the termination of a pod", "decision", r.Decision, "pod", pod,
			"podUID", uid, "err", r.Err)
	case PodStopped:
		logger.Info("Eviction manager: pod is evicted successfully", "decision", r.Decision, "pod", pod, "podUID", uid)
	case KillRefused:
		logger.Info("Eviction manager: pod is not evicted, agent is stopping", "decision", r.Decision, "pod", pod,
			"podUID", uid)
	case PodGone:
		logger.Info("Eviction manager: pod is not evicted, it has ended", "decision", r.Decision, "pod", pod, "podUID", uid,
			"err", r.Err)
	case PodReleased:
		logger.Info("Eviction manager: pod is cleaned up", "decision", r.Decision, "pod", pod, "podUID", uid)
	case ReclaimEnded: // Logged above.
	}
}

// logAttempt logs that the API server has not accepted an eviction.
func logAttempt(logger klog.Logger, r *Result) {
	pod := r.Victim.Pod
	values := []any{"decision", r.Decision, "pod", klog.KRef(pod.Namespace, pod.Name), "podUID", pod.UID,
		"killer", r.Victim.Killer, "err", r.Err}
	switch r.Kind {
	case KillBlocked:
		logger.Info("Eviction manager: API server does not accept an eviction for the time being", values...)
	case KillWithdrawn:
		logger.Info("Eviction manager: eviction by the API server is withdrawn", values...)
	default:
		logger.Info("Eviction manager: API server has not accepted an eviction", values...)
	}
}
