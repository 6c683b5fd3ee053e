package snapshot

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
)

// Signal identifies an eviction signal. The zero value is no signal. The numeric order is that in which signals are
// listed and, all else being equal, served: memory, PIDs, file systems.
type Signal uint8

// Stock's signals, in the order in which they are served.
const (
	NoSignal Signal = iota
	MemoryAvailable
	AllocatableMemoryAvailable
	PIDAvailable
	NodeFsAvailable
	NodeFsInodesFree
	ImageFsAvailable
	ImageFsInodesFree
	ContainerFsAvailable
	ContainerFsInodesFree

	// NumSignals is the length of an array that is indexed by Signal.
	NumSignals
)

// Names of resources that are not API resources, as in messages, events and annotations of stock.
const (
	ResourceInodes v1.ResourceName = "inodes"
	ResourcePIDs   v1.ResourceName = "pids"
)

type signalInfo struct {
	name      evictionapi.Signal
	resource  v1.ResourceName
	condition v1.NodeConditionType
	format    resource.Format
}

var signals = [NumSignals]signalInfo{
	MemoryAvailable: {evictionapi.SignalMemoryAvailable, v1.ResourceMemory, v1.NodeMemoryPressure,
		resource.BinarySI},
	AllocatableMemoryAvailable: {evictionapi.SignalAllocatableMemoryAvailable, v1.ResourceMemory, v1.NodeMemoryPressure,
		resource.BinarySI},
	PIDAvailable: {evictionapi.SignalPIDAvailable, ResourcePIDs, v1.NodePIDPressure, resource.DecimalSI},
	NodeFsAvailable: {evictionapi.SignalNodeFsAvailable, v1.ResourceEphemeralStorage, v1.NodeDiskPressure,
		resource.BinarySI},
	NodeFsInodesFree: {evictionapi.SignalNodeFsInodesFree, ResourceInodes, v1.NodeDiskPressure,
		resource.DecimalSI},
	ImageFsAvailable: {evictionapi.SignalImageFsAvailable, v1.ResourceEphemeralStorage, v1.NodeDiskPressure,
		resource.BinarySI},
	ImageFsInodesFree: {evictionapi.SignalImageFsInodesFree, ResourceInodes, v1.NodeDiskPressure,
		resource.DecimalSI},
	ContainerFsAvailable: {evictionapi.SignalContainerFsAvailable, v1.ResourceEphemeralStorage, v1.NodeDiskPressure,
		resource.BinarySI},
	ContainerFsInodesFree: {evictionapi.SignalContainerFsInodesFree, ResourceInodes, v1.NodeDiskPressure,
		resource.DecimalSI},
}

// AllSignals returns all signals in order.
func AllSignals() []Signal {
	all := make([]Signal, 0, NumSignals-1)
	for s := NoSignal + 1; s < NumSignals; s++ {
		all = append(all, s)
	}
	return all
}

// ParseSignal returns the signal with a name of the KubeletConfiguration, for example "memory.available".
func ParseSignal(name string) (Signal, bool) {
	for s := NoSignal + 1; s < NumSignals; s++ {
		if string(signals[s].name) == name {
			return s, true
		}
	}
	return NoSignal, false
}

// String returns the name in configuration, metrics and logs, "none" for NoSignal.
func (s Signal) String() string {
	if s == NoSignal || s >= NumSignals {
		return "none"
	}
	return string(signals[s].name)
}

// API returns the signal in the type of stock's packages. It must not be NoSignal.
func (s Signal) API() evictionapi.Signal { return signals[s].name }

// Resource returns the resource of which the signal is the available amount, by its name in messages.
func (s Signal) Resource() v1.ResourceName { return signals[s].resource }

// Condition returns the type of the node condition that is True while a threshold on the signal is met.
func (s Signal) Condition() v1.NodeConditionType { return signals[s].condition }

// Format returns the format of amounts in messages.
func (s Signal) Format() resource.Format { return signals[s].format }
