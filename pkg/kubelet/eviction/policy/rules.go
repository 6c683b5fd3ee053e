package policy

import "time"

// Rules is everything about decisions that is configured.
type Rules struct {
	// Thresholds in the order of configuration. Effective has been applied when they come to Decide.
	Thresholds []Threshold
	// PressureTransitionPeriod is how long a node condition stays True after its last threshold was met.
	PressureTransitionPeriod time.Duration
	// MaxPodGracePeriodSeconds caps the grace of soft evictions; negative leaves pods their own.
	MaxPodGracePeriodSeconds int64
	// LocalStorageLimits: limits on emptyDir volumes and ephemeral storage are enforced.
	LocalStorageLimits bool
	// LocalStorageDryRun: it is only said who breaks them.
	LocalStorageDryRun bool
	Timing             Timing
	Protection         Protection

	// dryRun: the decision is not carried out, so that it does not wait for anything that this would bring.
	dryRun bool
}

// Timing holds durations that are not about a threshold.
type Timing struct {
	// Period is the time between two looks when nothing happens.
	Period time.Duration
	// KillTime is how long it takes from the decision until an eviction without grace gives memory back.
	KillTime time.Duration
	// Settling is for how long an eviction should keep the node clear of the threshold. The need is forecast that far for
	// pods that exceed their requests. Zero switches that forecast off.
	Settling time.Duration
	// Patience is how long to wait for what is in flight before it stops counting: for the next victim while one is being
	// stopped, for the clean-up of one that was stopped, for a node-level reclaim.
	Patience time.Duration
}
