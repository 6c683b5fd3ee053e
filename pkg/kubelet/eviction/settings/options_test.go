package settings

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func TestDryRunOfDerivedThresholds(t *testing.T) {
	thresholds, err := ParseThresholds(ThresholdConfig{AllocatableEnforced: []string{"pods"},
		Hard: map[string]string{"memory.available": "1Gi", "nodefs.available": "10%"},
		Soft: map[string]string{"memory.available": "2Gi"}, SoftGracePeriods: map[string]string{"memory.available": "60s"}})
	if err != nil {
		t.Fatal(err)
	}
	dry := func(ids ...policy.ThresholdID) (list []string) {
		o := Options{DryRun: ids}
		for _, th := range o.mark(thresholds) {
			if th.DryRun {
				list = append(list, fmt.Sprint(th.Signal, " ", th.Soft))
			}
		}
		return list
	}
	hard, soft := snapshot.MemoryAvailable.String()+" false", snapshot.MemoryAvailable.String()+" true"
	pods := "allocatableMemory.available false"
	for _, tc := range []struct {
		in   []policy.ThresholdID
		want []string
	}{
		{[]policy.ThresholdID{{Signal: snapshot.MemoryAvailable}}, []string{hard, pods}},
		{[]policy.ThresholdID{{Signal: snapshot.MemoryAvailable, Soft: true}}, []string{soft}},
		{[]policy.ThresholdID{{Signal: snapshot.AllocatableMemoryAvailable}}, []string{pods}},
		{nil, nil},
	} {
		if got := dry(tc.in...); !slices.Equal(got, tc.want) {
			t.Errorf("%v: %q, want %q", tc.in, got, tc.want)
		}
	}
	for _, th := range thresholds {
		if th.DryRun {
			t.Errorf("%v was changed", th)
		}
	}
}

func TestLimitModes(t *testing.T) {
	for mode, want := range map[v1alpha1.LocalStorageLimits][2]bool{
		v1alpha1.LimitsEnforced: {true, false}, v1alpha1.LimitsDryRun: {true, true}, v1alpha1.LimitsOff: {false, false},
	} {
		o := Options{LocalStorageLimits: mode}
		for _, on := range []bool{true, false} {
			rules := (&Kubelet{LocalStorageCapacityIsolation: on}).Rules(&o)
			got := [2]bool{rules.LocalStorageLimits, rules.LocalStorageDryRun}
			if got != [2]bool{want[0] && on, want[1]} {
				t.Errorf("%s, isolation %v: %v", mode, on, got)
			}
		}
	}
}

func TestDefaultOptionsProtectNoPod(t *testing.T) {
	o := DefaultOptions()
	if !reflect.DeepEqual(o.Protection, policy.Protection{}) || o.DryRun != nil {
		t.Errorf("%+v is not stock", o)
	}
}
