package pressure

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// Values are reported in steps, which are numbers here: the greater the number, the worse is the value.

// Steps of headroom: -step is the number of whole twentieths of the capacity, rounded down.
const headroomSteps = 20

// timeSteps are the steps of the time to a threshold, from step 1 on: a time is in the last one that is not less. Step
// 0 is a longer time, or none.
var timeSteps = []struct {
	most time.Duration
	name string
}{
	{30 * time.Minute, "30m"}, {10 * time.Minute, "10m"}, {5 * time.Minute, "5m"}, {2 * time.Minute, "2m"},
	{time.Minute, "1m"}, {30 * time.Second, "30s"},
}

// levelSteps are the levels by step.
var levelSteps = []policy.Level{policy.LevelCalm, policy.LevelNear, policy.LevelMet}

const (
	calmStep = iota
	nearStep
	metStep
)

// maxCapacity keeps computations with steps from overflowing. Greater capacities count as this one.
const maxCapacity = 1 << 58

// headroomStep returns the step of a headroom. It is positive exactly if the headroom is negative.
func headroomStep(headroom, capacity int64) int {
	headroom, capacity = bounded(headroom, capacity)
	step := headroom * headroomSteps / capacity
	if headroom < 0 && headroom*headroomSteps%capacity != 0 {
		step--
	}
	return -int(step)
}

// clearHeadroomStep returns the step of what is left of a headroom without the margin of half a step, so that noise at
// the bound of a step changes nothing. A headroom that is no longer negative needs no margin.
func clearHeadroomStep(headroom, capacity int64) int {
	headroom, capacity = bounded(headroom, capacity)
	margin := capacity / headroomSteps / 2
	if headroom < margin {
		return headroomStep(min(headroom, 0), capacity)
	}
	return headroomStep(headroom-margin, capacity)
}

// bounded returns a capacity of at least 1, and a headroom of at most that in either direction.
func bounded(headroom, capacity int64) (int64, int64) {
	capacity = min(max(1, capacity), maxCapacity)
	return min(max(-capacity, headroom), capacity), capacity
}

// timeStep returns the step of a time to a threshold.
func timeStep(left time.Duration) (step int) {
	for i := range timeSteps {
		if left <= timeSteps[i].most {
			step = i + 1
		}
	}
	return step
}

// withoutMargin returns what is left of a time without a margin of one fifth, for the same reason.
func withoutMargin(left time.Duration) time.Duration { return left - left/5 }
