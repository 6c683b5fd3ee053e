package snapshot

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
)

// Signal names one thing that a node can run out of. The zero value is no signal. The numeric order is the order in
// which signals are listed and served when nothing else tells them apart: memory, then PIDs, then the file systems.
type Signal uint8

// The signals that stock knows, in the order in which they are served.
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

	// NumSignals is one more than the last signal: the length of an array that is indexed by Signal.
	NumSignals
)

// Names that are not API resources; stock shows them in messages, events and annotations.
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

// AllSignals lists every signal in order.
func AllSignals() []Signal {
	all := make([]Signal, 0, NumSignals-1)
	for s := NoSignal + 1; s < NumSignals; s++ {
		all = append(all, s)
	}
	return all
}

// ParseSignal finds a signal by the name that configuration uses, for example "memory.available".
func ParseSignal(name string) (Signal, bool) {
	for s := NoSignal + 1; s < NumSignals; s++ {
		if string(signals[s].name) == name {
			return s, true
		}
	}
	return NoSignal, false
}

// String is the name that configuration, metrics and logs use.
func (s Signal) String() string {
	if s == NoSignal || s >= NumSignals {
		return "none"
	}
	return string(signals[s].name)
}

// API is the signal in the type of the stock packages.
func (s Signal) API() evictionapi.Signal { return signals[s].name }

// Resource is what pods use of it, by the name shown to users.
func (s Signal) Resource() v1.ResourceName { return signals[s].resource }

// Condition is the node condition that is True while a threshold on the signal is met.
func (s Signal) Condition() v1.NodeConditionType { return signals[s].condition }

// Format is how an amount of it is printed.
func (s Signal) Format() resource.Format { return signals[s].format }
