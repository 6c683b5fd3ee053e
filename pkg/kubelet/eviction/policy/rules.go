package policy

import "time"

// Rules is the configuration of decisions. It must not be modified while Decide uses it.
type Rules struct {
	// Thresholds are in the order of configuration, after Effective.
	Thresholds []Threshold
	// PressureTransitionPeriod is how long a node condition stays True after a threshold of it was last met.
	PressureTransitionPeriod time.Duration
	// MaxPodGracePeriodSeconds limits the grace period of soft evictions, in seconds. If it is negative, pods have their
	// own.
	MaxPodGracePeriodSeconds int64
	// LocalStorageLimits: pods that exceed limits on emptyDir volumes or ephemeral storage are evicted.
	LocalStorageLimits bool
	// LocalStorageDryRun: such pods are only reported.
	LocalStorageDryRun bool
	// ReportMemoryGrowth: decisions report how fast memory usage grows (Decision.Growth). Snapshots have all pods then.
	ReportMemoryGrowth bool
	// ReportOutlook: decisions report how far each signal is from its hard threshold (Decision.Outlook). Snapshots have
	// all pods then. The same samples of memory usage are kept as with ReportMemoryGrowth, also while memory is far from
	// all thresholds; no earlier round is requested.
	ReportOutlook bool
	// Fence: victims of hard thresholds that would use up what is left before they are stopped are fenced
	// (Victim.Fence).
	Fence      bool
	Timing     Timing
	Protection Protection

	// dryRun: the decision is not carried out, and so does not wait for effects of reclaims or evictions.
	dryRun bool
}

// Timing has durations that do not belong to a threshold.
type Timing struct {
	// Period is the monitoring period: the time between two rounds without a trigger.
	Period time.Duration
	// KillTime is the time from the decision until an eviction with the minimal grace period has released memory.
	KillTime time.Duration
	// Settling is for how long an eviction should keep the node clear of the threshold: the need includes the growth in
	// that time of pods above their requests. Zero switches that forecast off.
	Settling time.Duration
	// Patience is the longest time to wait for a victim to stop, for the cleanup of one that has stopped, and for a
	// node-level reclaim, before more is done.
	Patience time.Duration
}

// reportGrowth reports whether memory usage is sampled also while memory is far from all thresholds.
func (r *Rules) reportGrowth() bool { return r.ReportMemoryGrowth || r.ReportOutlook }
