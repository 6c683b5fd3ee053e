package plan

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"k8s.io/kubernetes/pkg/apis/scheduling"
)

// Period is how long the pods of a priority have to stop, until the next higher period begins.
type Period struct {
	// Priority is the lowest that the period is for. Pods below every period belong to the lowest.
	Priority int32
	// Seconds is the longest that a pod of the group gets, and the longest that the next group waits for this one.
	Seconds int64
}

// Legacy returns the periods that shutdownGracePeriod and shutdownGracePeriodCriticalPods mean (KEP-2712): the critical
// pods have the end of the total for themselves. There are none if total is zero or less than critical.
func Legacy(total, critical time.Duration) []Period {
	if total == 0 || critical > total || critical < 0 {
		return nil
	}
	return []Period{
		{Priority: scheduling.DefaultPriorityWhenNoDefaultClassExists, Seconds: int64((total - critical) / time.Second)},
		{Priority: scheduling.SystemCriticalPriority, Seconds: int64(critical / time.Second)},
	}
}

// Ordered returns the periods from the lowest priority up. Periods of one priority keep their order.
func Ordered(periods []Period) []Period {
	return slices.SortedStableFunc(slices.Values(periods),
		func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
}

// Total is how long the shutdown is to be delayed.
func Total(periods []Period) time.Duration {
	var seconds int64
	for _, p := range periods {
		seconds += p.Seconds
	}
	return time.Duration(seconds) * time.Second
}

// Fit shortens the periods to what the machine grants, in proportion, so that those of the highest priority, which are
// last, do not lose all of theirs. What is granted is used to its last whole second. Periods that fit are returned as
// they are.
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

// scale is n × numerator ÷ denominator, rounded down. The product may be larger than an int64.
func scale(n, numerator, denominator int64) int64 {
	high, low := bits.Mul64(uint64(n), uint64(numerator))
	quotient, _ := bits.Div64(high, low, uint64(denominator))
	return int64(quotient)
}
