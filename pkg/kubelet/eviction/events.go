package eviction

import (
	"context"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// Reasons of events. The first two are stock's.
const (
	eventThresholdMet       = "EvictionThresholdMet"
	eventEvicted            = policy.ReasonEvicted
	eventHastened           = "EvictionHastened"
	eventBlocked            = "EvictionBlocked"
	eventFenced             = "EvictionFenced"
	eventDryRun             = "EvictionDryRun"
	eventSignalUnknown      = "EvictionSignalUnknown"
	eventRuntimeSilent      = "EvictionRuntimeSilent"
	eventCountersUnreadable = "EvictionMemoryUnwatched"
)

// eventSink records events on the node for notices of rounds, and on pods for results.
type eventSink struct {
	recorder record.EventRecorder
	node     *v1.ObjectReference
	// period is the monitoring period.
	period func() time.Duration
	// blocked has the pods with an event within blockedPause that their eviction is blocked, and its time.
	blocked map[types.UID]time.Time
}

// blockedPause is the shortest time between two events that the eviction of a pod is blocked. Of all warnings about
// a pod, client-go sends 25 and then one in this time. If each attempt had an event, the one that the pod is
// evicted would be dropped with the rest.
const blockedPause = 5 * time.Minute

// Name implements Sink.
func (*eventSink) Name() string { return "events" }

// NeedsRound implements roundFilter.
func (*eventSink) NeedsRound(r *Round) bool { return len(r.Notices) > 0 }

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
		s.recorder.Eventf(s.node, warn, eventSignalUnknown, "Signals %v are unknown since %s; %s stays %v",
			n.Condition.UnknownSignals, n.since(), n.Condition.Type, n.Condition.True)
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

// Result implements Sink. A request that began a termination is reported as an eviction, one that shortened its grace
// period as hastened, one that the API server refuses for the time being as blocked, and the end of a fence; others
// have no event.
func (s *eventSink) Result(_ context.Context, r *Result) {
	switch {
	case r.Kind == KillBlocked && !s.isNews(r):
	case r.Kind == KillBlocked:
		s.recorder.AnnotatedEventf(r.Victim.Pod.Reference(), r.Victim.Annotations, v1.EventTypeWarning, eventBlocked,
			"%sThe API server does not accept it for the time being: %v", r.Victim.Message, r.Err)
	case r.Kind == FenceEnded:
		s.recorder.AnnotatedEventf(r.Victim.Pod.Reference(), r.Victim.Annotations, v1.EventTypeWarning, eventFenced,
			"The pod was evicted while it grew fast: %s", r.Fence)
	case r.Kind != KillAccepted:
	case r.Answer == podkill.Begun:
		s.evicted(eventEvicted, r.Victim)
	case r.Answer == podkill.Hastened:
		s.evicted(eventHastened, r.Victim)
	}
}

// isNews reports whether the last event that the eviction of the pod is blocked is long enough ago for another one.
func (s *eventSink) isNews(r *Result) bool {
	maps.DeleteFunc(s.blocked, func(_ types.UID, at time.Time) bool { return r.At.Sub(at) >= blockedPause })
	uid := r.Victim.Pod.UID
	if _, reported := s.blocked[uid]; reported {
		return false
	}
	if s.blocked == nil {
		s.blocked = map[types.UID]time.Time{}
	}
	s.blocked[uid] = r.At
	return true
}

func (s *eventSink) evicted(reason string, v *policy.Victim) {
	s.recorder.AnnotatedEventf(v.Pod.Reference(), v.Annotations, v1.EventTypeWarning, reason, "%s", v.Message)
}
