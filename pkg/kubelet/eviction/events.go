package eviction

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// Reasons of events. The first two are stock's.
const (
	eventThresholdMet       = "EvictionThresholdMet"
	eventEvicted            = policy.ReasonEvicted
	eventHastened           = "EvictionHastened"
	eventDryRun             = "EvictionDryRun"
	eventSignalUnknown      = "EvictionSignalUnknown"
	eventRuntimeSilent      = "EvictionRuntimeSilent"
	eventCountersUnreadable = "EvictionMemoryUnwatched"
)

// eventSink records events: about the node from the notices of rounds, about pods from results.
type eventSink struct {
	recorder record.EventRecorder
	node     *v1.ObjectReference
	// period is the monitoring period.
	period func() time.Duration
}

// Name implements Sink.
func (*eventSink) Name() string { return "events" }

// Round implements Sink.
func (s *eventSink) Round(_ context.Context, r *Round) {
	for i := range r.Notices {
		s.notice(&r.Notices[i])
	}
}

func (s *eventSink) notice(n *Notice) {
	warn := v1.EventTypeWarning
	switch n.Kind {
	case Reclaiming:
		s.recorder.Eventf(s.node, warn, eventThresholdMet, "Attempting to reclaim %s", n.Need.Resource())
	case SignalsUnknown:
		s.recorder.Eventf(s.node, warn, eventSignalUnknown, "Signals %v are unknown since %s; %s stays %v", n.Condition.Blind,
			n.since(), n.Condition.Type, n.Condition.True)
	case RuntimeSilent:
		s.recorder.Eventf(s.node, warn, eventRuntimeSilent,
			"The container runtime has not reported pod stats since %s; no pod is evicted for file systems", n.since())
	case CountersUnreadable:
		s.recorder.Eventf(s.node, warn, eventCountersUnreadable,
			"Memory counters cannot be read since %s, memory is only read every %v: %v", n.since(), s.period(), n.Err)
	case DryRunVictim:
		c, first := n.Victim.Cause, ""
		if n.AfterReclaim {
			first = "reclaim from the node first and, if that is not enough, "
		}
		s.recorder.Eventf(s.node, v1.EventTypeNormal, eventDryRun, "Dry run of %s (%s): would %sevict pod %s/%s because: %s",
			c.Name(), c.Kind, first, n.Victim.Pod.Namespace, n.Victim.Pod.Name, n.Victim.Message)
	case ConditionChanged, SignalsKnown, RuntimeAnswers, CountersReadable: // Only logged.
	}
}

func (n *Notice) since() string { return n.Since.UTC().Format(time.RFC3339) }

// Result implements Sink. Only a request that began the termination is an eviction; one that made a pod terminate
// sooner is reported as that, and one that changed nothing is not worth an event.
func (s *eventSink) Result(_ context.Context, r *Result) {
	if r.Kind != KillAccepted {
		return
	}
	reason := map[podkill.Answer]string{podkill.Begun: eventEvicted, podkill.Hastened: eventHastened}[r.Answer]
	if reason != "" {
		s.recorder.AnnotatedEventf(r.Victim.Pod.Reference(), r.Victim.Annotations, v1.EventTypeWarning, reason, "%s",
			r.Victim.Message)
	}
}
