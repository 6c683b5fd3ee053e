package terminations

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// Cause is the reason of a termination. Its values are part of the file format.
type Cause string

const (
	// Eviction: the agent evicted the pod to free resources.
	Eviction Cause = "eviction"
	// Kill: the agent stopped the pod for another reason. Pods that node shutdown stops have no record.
	Kill Cause = "kill"
	// Deletion: the pod had been deleted at the API server, and the agent shortened its grace period.
	Deletion Cause = "deletion"
)

// Record is a termination that the agent has begun, or whose grace period it has shortened.
type Record struct {
	UID             types.UID
	Namespace, Name string
	Cause           Cause
	// Disruption is the part of the pod's status that explains the termination, nil if there is none.
	Disruption *podkill.Disruption
	// GracePeriodSeconds is the accepted grace period, at least 1.
	GracePeriodSeconds int64
	// Requested is the time of the first request, Deadline the end of the grace period that was accepted last.
	Requested, Deadline time.Time
}

// Remaining returns the rest of the grace period at the given time, in whole seconds, rounded up. It is at least 1,
// since a container always gets a chance to exit, and at most GracePeriodSeconds, in case the clock was set back.
func (r Record) Remaining(now time.Time) int64 {
	left := r.Deadline.Sub(now)
	seconds := int64(left / time.Second)
	if left%time.Second > 0 {
		seconds++
	}
	return max(min(seconds, r.GracePeriodSeconds), 1)
}
