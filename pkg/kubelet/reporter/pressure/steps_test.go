package pressure

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSteps(t *testing.T) {
	for _, test := range []struct {
		headroom, capacity int64
		step, clear        int
	}{
		{100, 100, -20, -19}, {99, 100, -19, -19}, {55, 100, -11, -10}, {57, 100, -11, -11}, {50, 100, -10, -9},
		{5, 100, -1, 0}, {4, 100, 0, 0}, {0, 100, 0, 0}, {-1, 100, 1, 1}, {-5, 100, 1, 1}, {-6, 100, 2, 2},
		{-1000, 100, 20, 20}, {1000, 100, -20, -19}, {math.MaxInt64, math.MaxInt64, -20, -19},
		{math.MinInt64, math.MaxInt64, 20, 20}, {1, 0, -20, -20}, {-1, -5, 20, 20},
	} {
		if step, clear := headroomStep(test.headroom, test.capacity), clearHeadroomStep(test.headroom, test.capacity); step !=
			test.step || clear != test.clear {
			t.Errorf("headroom %d of %d: %d, %d, want %d, %d", test.headroom, test.capacity, step, clear, test.step,
				test.clear)
		}
	}
	for left, want := range map[time.Duration]string{
		0: "30s", 30 * time.Second: "30s", 31 * time.Second: "1m", time.Minute: "1m", 2 * time.Minute: "2m",
		3 * time.Minute: "5m", 5*time.Minute + 1: "10m", 20 * time.Minute: "30m", 30 * time.Minute: "30m",
		30*time.Minute + 1: "",
	} {
		got := ""
		if step := timeStep(left); step > 0 {
			got = timeSteps[step-1].name
		}
		if got != want {
			t.Errorf("%v: %q, want %q", left, got, want)
		}
	}
}

// TestStepsAreBounds: a step of headroom is a lower bound, less than a step below it; the one with the margin is not
// better.
func TestStepsAreBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, maxCapacity).Draw(t, "capacity")
		headroom := rapid.Int64Range(-capacity, capacity).Draw(t, "headroom")
		step, clear := headroomStep(headroom, capacity), clearHeadroomStep(headroom, capacity)
		if lower := -partOf(capacity, step); lower > headroom || headroom-lower > capacity/headroomSteps+2 {
			t.Fatalf("%d of %d: step %d, %d", headroom, capacity, step, lower)
		}
		if clear < step || clear > step+1 || (step > 0) != (headroom < 0) || (clear > 0) != (headroom < 0) {
			t.Fatalf("%d of %d: step %d, with margin %d", headroom, capacity, step, clear)
		}
	})
}
