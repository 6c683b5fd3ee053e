package decisionlog

import (
	"fmt"
	"time"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
)

// outcomeOfResult returns the record of a result.
func outcomeOfResult(r *eviction.Result, at time.Time) debugv1alpha1.PressureOutcome {
	o := debugv1alpha1.PressureOutcome{
		Decision: r.Decision, Time: at, Kind: string(r.Kind), ReleasedMemoryBytes: int64(r.Released.Memory),
		Detail: trace.Cut(detailOf(r)),
	}
	if r.Err != nil {
		o.Error = trace.Cut(r.Err.Error())
	}
	if v := r.Victim; v != nil {
		o.Pod = &debugv1alpha1.PressurePod{Namespace: v.Pod.Namespace, Name: v.Pod.Name, UID: v.Pod.UID}
	}
	return o
}

func detailOf(r *eviction.Result) string {
	switch r.Kind {
	case eviction.KillAccepted, eviction.KillRefused:
		return fmt.Sprint(r.Answer)
	case eviction.PodFenced, eviction.FenceEnded:
		if r.Fence != nil {
			return r.Fence.String()
		}
	case eviction.ReclaimEnded:
		return fmt.Sprintf("%d containers and %d images removed, %d freed, %d missing", r.Reclaimed.Containers,
			r.Reclaimed.Images, r.Reclaimed.Freed, r.Reclaimed.Missing)
	case eviction.PodStopped:
		if !r.Evicted {
			return "the pod was terminating already"
		}
	case eviction.KillBlocked, eviction.KillWithdrawn, eviction.PodGone, eviction.PodOverdue, eviction.KillFailed,
		eviction.PodReleased:
	}
	return ""
}
