package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Default returns the configuration that is in force without a file.
func Default() *NodePressureConfiguration {
	c := &NodePressureConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: SchemeGroupVersion.String(), Kind: Kind}}
	SetDefaults(c)
	return c
}

// SetDefaults sets absent fields. It does not change fields that are set, even to an invalid value.
//
// monitoringPeriod and patience are those of the stock kubelet: its monitoring period, and the time for which it waits
// for the cleanup of an evicted pod. killTime is one second of grace period and the time that a runtime needs. settling
// is stock's transition period of pressure conditions. Those of plugins are Katalyst's, where it has the setting.
//
// fence is the one default with which evictions differ from stock's: stock evicts a pod that uses up what is left
// within a second as well, but the kernel's OOM killer ends containers before, also those of other pods.
func SetDefaults(c *NodePressureConfiguration) {
	defaultDuration(&c.MonitoringPeriod, 10*time.Second)

	setDefault(&c.Memory.Available, WorkingSet)
	defaultQuantity(&c.Memory.WorstGrowthPerSecond, "2Gi")

	defaultDuration(&c.Eviction.KillTime, 3*time.Second)
	defaultDuration(&c.Eviction.Settling, 5*time.Minute)
	defaultDuration(&c.Eviction.Patience, 30*time.Second)
	setDefault(&c.Eviction.LocalStorageLimits, LimitsEnforced)
	setDefault(&c.Eviction.Fence, FenceAuto)

	defaultDuration(&c.Admission.WaitForRoom, time.Minute)

	defaultNumber(&c.Protection.MaxProtectedPods, 10)
	defaultQuantity(&c.Protection.MaxProtectedMemory, "4Gi")
	defaultDuration(&c.Protection.MaxDelay, 30*time.Second)

	defaultQuantity(&c.DecisionLog.Memory, "8Mi")
	defaultQuantity(&c.DecisionLog.MaxSize, "256Mi")
	defaultDuration(&c.DecisionLog.MaxAge, 7*24*time.Hour)

	setEvictionPluginDefaults(&c.Plugins.Eviction)
	setReporterPluginDefaults(&c.Plugins.Reporter)
}

func setEvictionPluginDefaults(e *EvictionPluginsConfiguration) {
	defaultDuration(&e.Period, 5*time.Second)
	defaultDuration(&e.CallTimeout, 5*time.Second)
	defaultDuration(&e.ConditionTransitionPeriod, 5*time.Minute)
	defaultNumber(&e.Burst, 3)
	defaultNumber(&e.MaxInFlight, 10)
	defaultDuration(&e.MaxGracePeriod, 10*time.Minute)
	setDefault(&e.ForcedKiller, PodWorker)
	setDefault(&e.Authentication, SocketOwner)
	if e.Taints.Effects == nil {
		e.Taints.Effects = []TaintEffect{NoSchedule, PreferNoSchedule}
	}
	setPluginSettingsDefaults(&e.Settings)
}

func setPluginSettingsDefaults(s *PluginSettings) {
	defaultDuration(&s.MemoryGrowth.Horizon, 2*time.Minute)

	defaultNumber(&s.ReclaimedResourcePressure.RequestedPercent, 500)
	defaultDuration(&s.ReclaimedResourcePressure.MetFor, 0)
	defaultDuration(&s.ReclaimedResourcePressure.GracePeriod, time.Minute)

	defaultNumber(&s.RSSOveruse.ResidentPercent, 105)

	cpu := &s.CPUPressure
	defaultNumber(&cpu.StallPercent, 60)
	defaultNumber(&cpu.BusyPercent, 90)
	defaultNumber(&cpu.ThrottledPercent, 50)
	defaultDuration(&cpu.Window, time.Minute)
	defaultNumber(&cpu.PodPercent, 1)

	numa := &s.NUMAMemoryPressure
	defaultQuantity(&numa.CriticalGap, "1Gi")
	defaultQuantity(&numa.LowGap, "256Mi")
	defaultQuantity(&numa.MinInactiveFile, "4Gi")
	defaultNumber(&numa.ReclaimedRounds, 6)
	defaultNumber(&numa.AllRounds, 12)
	defaultNumber(&numa.PodPermille, 1)

	system := &s.SystemMemoryPressure
	defaultNumber(&system.KswapdPagesPerSecond, 2000)
	defaultDuration(&system.KswapdFor, 2*time.Minute)
	defaultNumber(&system.NodeStallPercent, 15)
	defaultNumber(&system.PodStallPercent, 4)
	defaultDuration(&system.ReclaimedAfter, 15*time.Second)
	defaultDuration(&system.AllAfter, 45*time.Second)
	defaultDuration(&system.CoolDown, 35*time.Second)
}

func setReporterPluginDefaults(r *ReporterPluginsConfiguration) {
	defaultDuration(&r.Period, 5*time.Second)
	defaultDuration(&r.CallTimeout, 5*time.Second)
	defaultDuration(&r.StopGracePeriod, 5*time.Minute)
	defaultDuration(&r.Sustained, 10*time.Second)
}

func defaultNumber(p **int32, n int32) {
	if *p == nil {
		*p = &n
	}
}

func defaultDuration(p **metav1.Duration, d time.Duration) {
	if *p == nil {
		*p = &metav1.Duration{Duration: d}
	}
}

func defaultQuantity(p **resource.Quantity, amount string) {
	if *p == nil {
		*p = new(resource.MustParse(amount))
	}
}

func setDefault[T ~string](p *T, value T) {
	if *p == "" {
		*p = value
	}
}
