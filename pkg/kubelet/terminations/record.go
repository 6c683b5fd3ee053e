package terminations

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// Cause is why a termination was begun. Its values stand in files.
type Cause string

const (
	// Eviction: the agent evicted the pod to free resources.
	Eviction Cause = "eviction"
	// Kill: the agent stopped the pod for another reason. What the node's shutdown stops is not kept.
	Kill Cause = "kill"
	// Deletion: the API server had deleted the pod before, and the agent asked it to stop sooner.
	Deletion Cause = "deletion"
)

// Record is a termination that the agent has begun, or hastened.
type Record struct {
	UID             types.UID
	Namespace, Name string
	Cause           Cause
	// Disruption is what the pod's status says about the stop, nil if nothing.
	Disruption *podkill.Disruption
	// GraceSeconds is the accepted grace period, at least 1.
	GraceSeconds int64
	// Requested is when the termination was requested first, Deadline when the grace period that was accepted last is over.
	Requested, Deadline time.Time
}

// Remaining returns what is left of the grace period at the given time, in whole seconds: at least 1, since a container always gets a
// moment to end by itself, and never more than was accepted, should the clock have been set back.
func (r Record) Remaining(now time.Time) int64 {
	left := r.Deadline.Sub(now)
	seconds := int64(left / time.Second)
	if left%time.Second > 0 {
		seconds++
	}
	return max(min(seconds, r.GraceSeconds), 1)
}
