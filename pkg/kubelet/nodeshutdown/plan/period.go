package plan

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"k8s.io/kubernetes/pkg/apis/scheduling"
)

// Period is the time for stopping the pods from one priority up to that of the next period.
type Period struct {
	// Priority is the lowest priority that the period is for. The lowest period is also for all priorities below it.
	Priority int32
	// Seconds is the maximum grace period of the pods, and the maximum time that the next group waits for this one.
	Seconds int64
}

// Legacy returns the periods that are equivalent to shutdownGracePeriod (total) and shutdownGracePeriodCriticalPods
// (critical) (KEP-2712): one for regular pods, then one for critical pods, which is part of the total. There are none
// if total is zero or less than critical, or if critical is negative.
func Legacy(total, critical time.Duration) []Period {
	if total == 0 || critical > total || critical < 0 {
		return nil
	}
	return []Period{
		{Priority: scheduling.DefaultPriorityWhenNoDefaultClassExists, Seconds: int64((total - critical) / time.Second)},
		{Priority: scheduling.SystemCriticalPriority, Seconds: int64(critical / time.Second)},
	}
}

// Ordered returns the periods in ascending order of their priorities. Periods with the same priority keep their order.
func Ordered(periods []Period) []Period {
	return slices.SortedStableFunc(slices.Values(periods),
		func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
}

// Total returns the sum of the periods, which is how long the shutdown has to be delayed.
func Total(periods []Period) time.Duration {
	var seconds int64
	for _, p := range periods {
		seconds += p.Seconds
	}
	return time.Duration(seconds) * time.Second
}

// Fit shortens the periods in proportion, so that their total is the granted time, rounded down to whole seconds: if
// only the last periods were shortened, the pods with the highest priority would have no time. Periods that fit are
// returned unchanged.
func Fit(periods []Period, granted time.Duration) []Period {
	total := int64(Total(periods) / time.Second)
	seconds := max(0, int64(granted/time.Second))
	if total <= seconds {
		return periods
	}
	fitted := slices.Clone(periods)
	var end, spent int64
	for i, p := range periods {
		end += p.Seconds
		fitted[i].Seconds = scale(end, seconds, total) - spent
		spent += fitted[i].Seconds
	}
	return fitted
}

// scale returns n × numerator ÷ denominator, rounded down. The product may be larger than an int64.
func scale(n, numerator, denominator int64) int64 {
	high, low := bits.Mul64(uint64(n), uint64(numerator))
	quotient, _ := bits.Div64(high, low, uint64(denominator))
	return int64(quotient)
}
