package app

import "github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"

// checkEviction checks every threshold, grace period and minimum reclaim.
func checkEviction(s *Settings) error {
	_, err := eviction.ParseThresholds(eviction.ThresholdConfig{
		AllocatableEnforced: s.Config.EnforceNodeAllocatable,
		Hard:                s.Config.EvictionHard,
		Soft:                s.Config.EvictionSoft,
		SoftGracePeriods:    s.Config.EvictionSoftGracePeriod,
		MinimumReclaim:      s.Config.EvictionMinimumReclaim,
	})
	return err
}
