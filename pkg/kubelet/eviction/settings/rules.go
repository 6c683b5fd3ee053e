package settings

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// Kubelet is the part of the KubeletConfiguration that decisions depend on.
type Kubelet struct {
	// Thresholds comes from ParseThresholds.
	Thresholds               []policy.Threshold
	PressureTransitionPeriod time.Duration
	// MaxPodGracePeriodSeconds limits the grace period of soft evictions; when negative, pods have their own.
	MaxPodGracePeriodSeconds int64
	// LocalStorageCapacityIsolation is true when limits on local storage are enforced.
	LocalStorageCapacityIsolation bool
}

// Rules combines both configurations: the rules of decisions, before policy.Effective.
func (k *Kubelet) Rules(o *Options) policy.Rules {
	return policy.Rules{
		Thresholds:               o.mark(k.Thresholds),
		PressureTransitionPeriod: k.PressureTransitionPeriod,
		MaxPodGracePeriodSeconds: k.MaxPodGracePeriodSeconds,
		LocalStorageLimits:       k.LocalStorageCapacityIsolation && o.LocalStorageLimits != v1alpha1.LimitsOff,
		LocalStorageDryRun:       o.LocalStorageLimits == v1alpha1.LimitsDryRun,
		ReportMemoryGrowth:       o.ReportMemoryGrowth,
		ReportOutlook:            o.ReportOutlook,
		Fence:                    o.Fence,
		Timing:                   o.timing(),
		Protection:               o.Protection,
	}
}
