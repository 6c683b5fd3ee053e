package app

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/kubernetes/pkg/kubelet/stats/pidlimit"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// reservable are the resources that can be reserved.
var reservable = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, pidlimit.PIDs}

// parseReservation parses kubeReserved or systemReserved.
func parseReservation(reserved map[string]string) (v1.ResourceList, error) {
	if len(reserved) == 0 {
		return nil, nil
	}
	list := v1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		if !slices.Contains(reservable, v1.ResourceName(name)) {
			return nil, fmt.Errorf("cannot reserve %q; it must be one of: %q", name, reservable)
		}
		quantity, err := resource.ParseQuantity(reserved[name])
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", name, reserved[name], err)
		}
		if quantity.Sign() < 0 {
			return nil, fmt.Errorf("%s %q must not be negative", name, reserved[name])
		}
		list[v1.ResourceName(name)] = quantity
	}
	return list, nil
}

// reservedForEviction returns the hard thresholds, which reduce the node's allocatable resources.
func reservedForEviction(hard map[string]string) ([]evictionapi.Threshold, error) {
	thresholds, err := settings.ParseThresholds(settings.ThresholdConfig{Hard: hard})
	return settings.HardThresholds(thresholds), err
}
