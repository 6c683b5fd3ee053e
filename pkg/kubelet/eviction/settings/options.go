package settings

import (
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Options are the settings of the NodePressureConfiguration. They may change while the manager runs. With the defaults
// it evicts as the stock kubelet does, except that it fences victims. Options and what they refer to must not be
// modified once they are in use.
type Options struct {
	// MonitoringPeriod is the time between two rounds without a trigger (kubernetes issue 104339).
	MonitoringPeriod time.Duration
	// MemoryFormula, CountSwap and CountHugepages define which memory counts as available; see snapshot.Counting.
	MemoryFormula  v1alpha1.AvailableMemory
	CountSwap      bool
	CountHugepages bool
	// WorstGrowth is an upper bound of the growth of memory usage, in bytes per second. It is assumed and not measured,
	// since growth may start at any time.
	WorstGrowth int64
	// WaitForRoom is the longest time for which a pod waits for the end of pressure before it is rejected, if its
	// controller would replace it on this node; zero rejects at once. It waits no longer than the transition period of
	// conditions.
	WaitForRoom time.Duration
	// KillTime, Settling and Patience are those of policy.Timing.
	KillTime, Settling, Patience time.Duration
	// LocalStorageLimits defines what happens to pods that exceed their limits on local storage. It has an effect only
	// with localStorageCapacityIsolation of the KubeletConfiguration.
	LocalStorageLimits v1alpha1.LocalStorageLimits
	// Fence: victims of hard thresholds of memory and PIDs that would use up what is left before they are stopped are
	// fenced (policy.Victim.Fence).
	Fence bool
	// DryRun lists the thresholds that only report what they would do.
	DryRun []policy.ThresholdID
	// Protection limits the effect of annotations of pods.
	Protection policy.Protection
	// ReportMemoryGrowth: decisions report how fast memory usage grows, for the plugin memory-growth.
	ReportMemoryGrowth bool
	// AllPods: the snapshot of each round has all pods, for plugins that decide on the usage of all pods.
	AllPods bool
	// ReportOutlook: decisions report how far each signal is from its hard threshold, for the reporter plugin pressure.
	ReportOutlook bool
}

// DefaultOptions returns the options without a configuration file.
func DefaultOptions() Options { return OptionsFrom(v1alpha1.Default()) }

// OptionsFrom returns the options of a configuration, which must be defaulted and valid.
func OptionsFrom(c *v1alpha1.NodePressureConfiguration) Options {
	return Options{
		MonitoringPeriod:   c.MonitoringPeriod.Duration,
		MemoryFormula:      c.Memory.Available,
		CountSwap:          c.Memory.CountSwap,
		CountHugepages:     c.Memory.CountHugepages,
		WorstGrowth:        c.Memory.WorstGrowthPerSecond.Value(),
		WaitForRoom:        c.Admission.WaitForRoom.Duration,
		KillTime:           c.Eviction.KillTime.Duration,
		Settling:           c.Eviction.Settling.Duration,
		Patience:           c.Eviction.Patience.Duration,
		LocalStorageLimits: c.Eviction.LocalStorageLimits,
		Fence:              c.Eviction.Fence == v1alpha1.FenceAuto,
		DryRun:             dryRunFrom(c.DryRun),
		Protection:         protectionFrom(&c.Protection),
	}
}

func dryRunFrom(list []v1alpha1.ThresholdReference) []policy.ThresholdID {
	var ids []policy.ThresholdID
	for _, t := range list {
		signal, ok := snapshot.ParseSignal(string(t.Signal))
		if !ok {
			continue // Validation accepts the same signals; a test compares them.
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

// protectionFrom returns the zero value when no namespace is listed, since no pod can be protected then.
func protectionFrom(c *v1alpha1.ProtectionConfiguration) policy.Protection {
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

// timing returns the durations that rules contain.
func (o *Options) timing() policy.Timing {
	return policy.Timing{Period: o.MonitoringPeriod, KillTime: o.KillTime, Settling: o.Settling, Patience: o.Patience}
}

// mark returns a copy of the thresholds in which those in dry run are marked. Derived thresholds are in dry run with
// their source: that of allocatable memory here, those of the container file system in policy.Effective.
func (o *Options) mark(configured []policy.Threshold) []policy.Threshold {
	marked := slices.Clone(configured)
	for i := range marked {
		t := &marked[i]
		t.DryRun = slices.Contains(o.DryRun, t.ID())
		if t.Signal == snapshot.AllocatableMemoryAvailable {
			origin := policy.ThresholdID{Signal: snapshot.MemoryAvailable, Soft: t.Soft}
			t.DryRun = t.DryRun || slices.Contains(o.DryRun, origin)
		}
	}
	return marked
}

// Counting returns which memory counts as available.
func (o *Options) Counting() snapshot.Counting {
	return snapshot.Counting{Reclaimable: o.MemoryFormula == v1alpha1.Reclaimable, Swap: o.CountSwap,
		Hugepages: o.CountHugepages}
}
