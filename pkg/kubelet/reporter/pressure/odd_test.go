package pressure

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestAnObservationThatIsRepeatedGetsOld: rounds whose stats are those of an earlier collection, because the container
// runtime is slow, do not make them newer. A threshold that is met stays met, since the decision has it so.
func TestAnObservationThatIsRepeatedGetsOld(t *testing.T) {
	for _, test := range []struct {
		headroom int64
		want     []entry
	}{{4 * gi, nil}, {-1, []entry{{Signal: "memory.available", Level: "met"}}}} {
		h := &history{now: start}
		o := outlook(test.headroom, 0, h.now.Add(-skew))
		h.observe(o)
		for range 2*int(maxAge/period) + 1 {
			h.pass(period, func() {})
			h.observe(o)
		}
		if got := h.entries(); len(got) != len(test.want) || len(got) > 0 && got[0] != test.want[0] {
			t.Errorf("%+v", got)
		}
		o.Observed = h.now.Add(-skew)
		h.observe(o)
		if got := h.entries(); len(got) != 1 || got[0].Available == "" {
			t.Errorf("observed again: %+v", got)
		}
	}
}

// TestAvailableIsALowerBound: also of a threshold that is greater than the capacity.
func TestAvailableIsALowerBound(t *testing.T) {
	for _, threshold := range []int64{gi, 19 * gi, 20 * gi, 40 * gi, 1 << 62} {
		for available := int64(0); available <= 20*gi; available += gi / 2 {
			h := &history{now: start}
			o := outlook(available-threshold, 0, h.now.Add(-skew))
			o.Available, o.Threshold = available, threshold
			h.observe(o)
			e := h.entries()[0]
			if got := resource.MustParse(e.Available); got.Value() > available {
				t.Fatalf("%d of %d available: %+v", available, threshold, e)
			}
		}
	}
}

// TestGrowthIsThatOfTheTime: while the time to the threshold is reported for another minute, the growth that belongs to
// it is, even if something else changes.
func TestGrowthIsThatOfTheTime(t *testing.T) {
	h := &history{now: start}
	h.observe(outlook(10*gi, 5*time.Minute, h.now.Add(-skew)))
	h.pass(period, func() {})
	h.observe(outlook(9*gi, 0, h.now.Add(-skew)))
	want := entry{Signal: "memory.available", Level: "near", Available: "10Gi", Threshold: "1Gi", Headroom: "45%",
		GrowthPerSecond: "34Mi", TimeToThreshold: "5m"}
	if got := h.entries(); len(got) != 1 || got[0] != want {
		t.Errorf("%+v", got)
	}
}

// TestOddOutlooks: whatever the amounts are, there is no panic, and the levels are those of the outlooks.
func TestOddOutlooks(t *testing.T) {
	odd := []int64{-1 << 63, -1 << 62, -1, 0, 1, 19, 1 << 57, 1<<58 + 1, 1<<63 - 1}
	for _, available := range odd {
		for _, capacity := range odd {
			for _, threshold := range odd {
				headroom := available - threshold
				level := policy.LevelCalm
				if headroom < 0 {
					level = policy.LevelMet
				}
				h := &history{now: start}
				h.observe(policy.SignalOutlook{Signal: snapshot.PIDAvailable, Level: level, Known: true,
					Observed: h.now.Add(-skew), Available: available, Capacity: capacity, Threshold: threshold,
					Headroom: headroom})
				if got := h.entries(); len(got) != 1 || got[0].Level != level || (got[0].Headroom[0] == '-') != (headroom < 0) {
					t.Errorf("%d, %d, %d: %+v", available, capacity, threshold, got)
				}
			}
		}
	}
}
