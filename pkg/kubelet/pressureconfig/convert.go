package pressureconfig

import (
	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// options is what a configuration, defaulted and valid, says to the eviction manager.
func options(c *v1alpha1.NodePressureConfiguration) eviction.Options {
	return eviction.Options{
		MonitoringPeriod:   c.MonitoringPeriod.Duration,
		MemoryFormula:      eviction.MemoryFormula(c.Memory.Available),
		CountSwap:          c.Memory.CountSwap,
		CountHugepages:     c.Memory.CountHugepages,
		WorstGrowth:        c.Memory.WorstGrowthPerSecond.Value(),
		WaitForRoom:        c.Admission.WaitForRoom.Duration,
		KillTime:           c.Eviction.KillTime.Duration,
		Settling:           c.Eviction.Settling.Duration,
		Patience:           c.Eviction.Patience.Duration,
		LocalStorageLimits: eviction.LimitMode(c.Eviction.LocalStorageLimits),
		DryRun:             dryRun(c.DryRun),
		Protection:         protection(&c.Protection),
	}
}

func dryRun(list []v1alpha1.ThresholdReference) []policy.ThresholdID {
	var ids []policy.ThresholdID
	for _, t := range list {
		signal, ok := snapshot.ParseSignal(t.Signal)
		if !ok {
			continue // validation knows the same signals; a test compares them
		}
		if t.Kind != v1alpha1.Soft {
			ids = append(ids, policy.ThresholdID{Signal: signal})
		}
		if t.Kind != v1alpha1.Hard {
			ids = append(ids, policy.ThresholdID{Signal: signal, Soft: true})
		}
	}
	return ids
}

// protection is the zero value when no namespace is listed, so that the options of the default configuration are the defaults.
func protection(c *v1alpha1.ProtectionConfiguration) policy.Protection {
	if len(c.Namespaces) == 0 {
		return policy.Protection{}
	}
	return policy.Protection{
		Namespaces: c.Namespaces,
		MaxPods:    int(*c.MaxProtectedPods),
		MaxMemory:  snapshot.Bytes(c.MaxProtectedMemory.Value()),
		MaxDelay:   c.MaxDelay.Duration,
	}
}
