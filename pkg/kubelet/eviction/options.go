package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Options are the settings of our own, beside those of the KubeletConfiguration. They may change while the manager
// runs; the defaults behave as the stock kubelet does. Options are values: whoever has been given them changes nothing
// in them.
type Options struct {
	// MonitoringPeriod is the time between two looks when nothing happens (kubernetes issue 104339).
	MonitoringPeriod time.Duration
	// MemoryFormula says what counts as available memory, CountSwap and CountHugepages what else belongs to it.
	MemoryFormula  v1alpha1.AvailableMemory
	CountSwap      bool
	CountHugepages bool
	// WorstGrowth is how fast memory may be used up, in bytes per second. It is an assumption and not a measurement, since
	// growth is zero until it starts.
	WorstGrowth int64
	// WaitForRoom is how long a pod that would come straight back to this node waits for the end of pressure before it is
	// rejected; zero rejects at once. The transition period of conditions bounds it too.
	WaitForRoom time.Duration
	// KillTime, Settling and Patience are those of policy.Timing.
	KillTime, Settling, Patience time.Duration
	// LocalStorageLimits says what becomes of pods that break limits of their own on local storage. It counts only where
	// localStorageCapacityIsolation of the KubeletConfiguration is on.
	LocalStorageLimits v1alpha1.LocalStorageLimits
	// DryRun lists the thresholds that only say what they would do.
	DryRun []policy.ThresholdID
	// Protection says which pods may influence whether and when they are evicted.
	Protection policy.Protection
}

// DefaultOptions behave as the stock kubelet does.
func DefaultOptions() Options { return OptionsFrom(v1alpha1.Default()) }

// OptionsFrom returns what a configuration says. It must have been defaulted and be valid.
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

// timing is the part of the options that rules take over.
func (o *Options) timing() policy.Timing {
	return policy.Timing{Period: o.MonitoringPeriod, KillTime: o.KillTime, Settling: o.Settling, Patience: o.Patience}
}

// mark is the thresholds with those in dry run marked. What is derived from another threshold is in dry run with it:
// that of all pods together follows memory.available, those of the container file system follow their source in
// policy.Effective.
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

// SetOptions hands over options that hold from the next look on. What is remembered stays: grace clocks, node
// conditions, and what is in flight. It may be called at any time; of several calls the last counts.
func (m *Manager) SetOptions(o Options) {
	m.newOptions.Store(&o)
	m.Wake()
}

// Options are those that hold. The caller must not modify what they point to.
func (m *Manager) Options() Options { return *m.options.Load() }

// takeOptions belongs to the loop.
func (m *Manager) takeOptions() {
	if o := m.newOptions.Swap(nil); o != nil {
		m.adopt(*o)
	}
}

// adopt makes options hold. It belongs to the loop, and to New before there is one.
func (m *Manager) adopt(o Options) {
	l := &m.loop
	l.rules = m.config.rules(&o)
	l.configured, l.underived = l.rules.Thresholds, true
	if l.gate != nil {
		l.gate.adopt(&o)
	}
	m.options.Store(&o)
}

// eventWishIgnored is the reason of an event on a pod.
const eventWishIgnored = "EvictionWishIgnored"

// checkWishes tells the owner of a pod that enters which of its annotations do not count.
func (m *Manager) checkWishes(pod *v1.Pod) {
	if err := m.options.Load().Protection.CheckWishes(pod); err != nil {
		m.config.Recorder.Event(pod, v1.EventTypeWarning, eventWishIgnored, err.Error())
	}
}
