package settings

import (
	"math"
	"strings"
	"testing"

	stock "k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func TestParseErrorsNameEverything(t *testing.T) {
	_, err := ParseThresholds(ThresholdConfig{
		Hard:             map[string]string{"memory.available": "lots", "cpu.available": "1"},
		Soft:             map[string]string{"nodefs.available": "110%", "pid.available": "10%"},
		SoftGracePeriods: map[string]string{"nodefs.available": "-1s"},
		MinimumReclaim:   map[string]string{"memory.available": "0%"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`evictionHard["memory.available"]: invalid value "lots": must be a quantity above zero`,
		`evictionHard["cpu.available"]: invalid value "1": ` +
			`unsupported eviction signal "cpu.available", supported are memory.available, `,
		`evictionSoft["nodefs.available"]: invalid value "110%": ` +
			`must be a quantity above zero such as "100Mi", or a percentage from "0%" to "100%"`,
		`evictionSoft["pid.available"]: invalid value "10%": ` +
			`a soft threshold needs a grace period: set evictionSoftGracePeriod["pid.available"]`,
		`evictionSoftGracePeriod["nodefs.available"]: invalid value "-1s": must be a duration of zero or more`,
		`evictionMinimumReclaim["memory.available"]: invalid value "0%": must be a quantity of zero or more`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not contain %q:\n%v", want, err)
		}
	}
}

func TestSoftWithoutGraceStaysSoft(t *testing.T) {
	all, err := ParseThresholds(ThresholdConfig{
		AllocatableEnforced: []string{"pods"},
		Soft:                map[string]string{"memory.available": "1Gi"},
		SoftGracePeriods:    map[string]string{"memory.available": "0s"},
	})
	if err != nil || len(all) != 1 || !all[0].Soft {
		t.Errorf("%+v, %v", all, err)
	}
}

var anyAmount = rapid.OneOf(
	rapid.SampledFrom([]string{"0%", "100%", "0.0%", "5%", "99.9%", "100.1%", "-1%", "%", "10%%", "1e1%", "0x1p-2%",
		"Inf%", "1e60%",
		"0", "-1", "1", "100Mi", "1.5Gi", "1k", "1e3", "Mi", "", " 1", "1 ", "0.5", "9999999999999999999999"}),
	rapid.StringMatching(`-?[0-9]{0,4}(\.[0-9]{1,2})?(%|Mi|Gi|k|m)?`),
)

func anySetting(values *rapid.Generator[string]) *rapid.Generator[map[string]string] {
	keys := []string{"memory.available", "allocatableMemory.available", "nodefs.available", "imagefs.inodesFree",
		"pid.available"}
	return rapid.MapOfN(rapid.SampledFrom(keys[:5]), values, 0, 3)
}

// TestParseAcceptsWhatStockAccepts compares results as sets, since stock's order is that of a map.
func TestParseAcceptsWhatStockAccepts(t *testing.T) {
	durations := rapid.SampledFrom([]string{"1m", "30s", "1h30m", "-1s", "1", "", "2us"})
	rapid.Check(t, func(t *rapid.T) {
		c := ThresholdConfig{
			AllocatableEnforced: rapid.SliceOf(rapid.SampledFrom([]string{"pods", "system-reserved", "none"})).Draw(t,
				"enforced"),
			Hard:             anySetting(anyAmount).Draw(t, "hard"),
			Soft:             anySetting(anyAmount).Draw(t, "soft"),
			SoftGracePeriods: anySetting(durations).Draw(t, "grace"),
			MinimumReclaim:   anySetting(anyAmount).Draw(t, "reclaim"),
		}
		if rapid.IntRange(0, 9).Draw(t, "odd signal") == 0 {
			c.Hard["cpu.available"] = "1"
		}
		want, wantErr := stock.ParseThresholdConfig(c.AllocatableEnforced, c.Hard, c.Soft, c.SoftGracePeriods,
			c.MinimumReclaim)
		got, err := ParseThresholds(c)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%+v\nstock returns %v, ours %v", c, wantErr, err)
		}
		if err != nil {
			return
		}
		if len(got) != len(want) {
			t.Fatalf("%+v\nstock has %d thresholds, we have %d", c, len(want), len(got))
		}
		for _, w := range want {
			if !hasThreshold(got, w) {
				t.Fatalf("%+v\nstock has %+v, we have %+v", c, w, got)
			}
		}
	})
}

func hasThreshold(list []policy.Threshold, w evictionapi.Threshold) bool {
	sig, _ := snapshot.ParseSignal(string(w.Signal))
	for _, t := range list {
		if t.Signal == sig && t.Soft == (w.GracePeriod > 0) && t.GracePeriod == w.GracePeriod &&
			sameValue(&t.Value, &w.Value) && sameValue(t.MinReclaim, w.MinReclaim) {
			return true
		}
	}
	return false
}

func sameValue(a, b *evictionapi.ThresholdValue) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Quantity == nil || b.Quantity == nil {
		return a.Quantity == b.Quantity && a.Percentage == b.Percentage
	}
	return a.Quantity.Cmp(*b.Quantity) == 0
}

// FuzzParseThresholds: for any configuration ParseThresholds does not panic, its thresholds are valid or its errors
// name setting and value, and it accepts what stock accepts, except for percentages that are not numbers.
func FuzzParseThresholds(f *testing.F) {
	f.Add("memory.available", "100Mi", "10%", "1m")
	f.Add("nodefs.inodesFree", "NaN%", "1e400", "9999999h")
	f.Add("pid.available", "0x1p-2%", "0.1", "1ns")
	f.Add("", "9999999999999999999999", "-0%", "")
	f.Fuzz(func(t *testing.T, signal, value, reclaim, grace string) {
		c := ThresholdConfig{
			AllocatableEnforced: []string{"pods"},
			Hard:                map[string]string{signal: value}, Soft: map[string]string{signal: value},
			SoftGracePeriods: map[string]string{signal: grace}, MinimumReclaim: map[string]string{signal: reclaim},
		}
		all, err := ParseThresholds(c)
		if err != nil && (!strings.Contains(err.Error(), "eviction") || !strings.Contains(err.Error(), "invalid value")) {
			t.Errorf("the error does not name setting and value: %v", err)
		}
		if len(all) > 3 {
			t.Errorf("%d thresholds from one signal", len(all))
		}
		for i := range all {
			th := &all[i]
			share := float64(th.Value.Percentage)
			if th.GracePeriod < 0 || (th.Value.Quantity == nil && (math.IsNaN(share) || share < 0 || share > 1)) {
				t.Errorf("%+v", th)
			}
			for _, capacity := range []int64{0, 1, math.MaxInt64} {
				if q := th.Quantity(capacity); q.Sign() < 0 {
					t.Errorf("%+v is %s of %d", th, q, capacity)
				}
			}
		}
		noNumber := func(s string) bool { return strings.HasSuffix(s, "%") && strings.Contains(strings.ToLower(s), "nan") }
		_, stockErr := stock.ParseThresholdConfig(c.AllocatableEnforced, c.Hard, c.Soft, c.SoftGracePeriods, c.MinimumReclaim)
		if (err == nil) != (stockErr == nil) && !noNumber(value) && !noNumber(reclaim) {
			t.Errorf("stock returns %v, ours %v", stockErr, err)
		}
	})
}
