package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Default is the configuration that holds without a file.
func Default() *NodePressureConfiguration {
	c := &NodePressureConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: SchemeGroupVersion.String(), Kind: Kind}}
	SetDefaults(c)
	return c
}

// SetDefaults fills in what is absent. A value that is there stays, also a wrong one.
//
// The period and the patience are those of the stock kubelet: its monitoring period, and the time that it waits for the
// clean-up of an evicted pod. killTime is a second of grace and the time that a runtime takes. settling is stock's
// transition period of pressure conditions.
func SetDefaults(c *NodePressureConfiguration) {
	duration(&c.MonitoringPeriod, 10*time.Second)

	orElse(&c.Memory.Available, WorkingSet)
	quantity(&c.Memory.WorstGrowthPerSecond, "2Gi")

	duration(&c.Eviction.KillTime, 3*time.Second)
	duration(&c.Eviction.Settling, 5*time.Minute)
	duration(&c.Eviction.Patience, 30*time.Second)
	orElse(&c.Eviction.LocalStorageLimits, LimitsEnforced)

	duration(&c.Admission.WaitForRoom, time.Minute)

	if c.Protection.MaxProtectedPods == nil {
		c.Protection.MaxProtectedPods = new(int32(10))
	}
	quantity(&c.Protection.MaxProtectedMemory, "4Gi")
	duration(&c.Protection.MaxDelay, 30*time.Second)
}

func duration(p **metav1.Duration, d time.Duration) {
	if *p == nil {
		*p = &metav1.Duration{Duration: d}
	}
}

func quantity(p **resource.Quantity, amount string) {
	if *p == nil {
		*p = new(resource.MustParse(amount))
	}
}

func orElse[T ~string](p *T, value T) {
	if *p == "" {
		*p = value
	}
}
