package topology

import (
	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"
)

// Managers are the managers of CPUs, memory and devices. Stock's cm.ContainerManager implements it. Its results are
// read only. Stock's managers of CPUs and memory panic when they are called before they have been started.
type Managers interface {
	// GetCPUs returns the CPUs that a container has for itself.
	GetCPUs(podUID, containerName string) []int64
	// GetAllocatableCPUs returns the CPUs that can be allocated; none under a policy that allocates none.
	GetAllocatableCPUs() []int64
	GetMemory(podUID, containerName string) []*podresourcesapi.ContainerMemory
	// GetAllocatableMemory returns the memory that can be allocated; none under a policy that allocates none.
	GetAllocatableMemory() []*podresourcesapi.ContainerMemory
	// GetDevices returns a device once for each NUMA node that it is near.
	GetDevices(podUID, containerName string) []*podresourcesapi.ContainerDevices
	// GetAllocatableDevices returns the healthy devices, one once for each NUMA node that it is near.
	GetAllocatableDevices() []*podresourcesapi.ContainerDevices
}

// Config are the parts that the plugin uses. Its functions may be called by two goroutines at a time.
type Config struct {
	Managers Managers
	// Ready returns whether the managers have been started and Pods is complete: the sources of pods are ready. Before
	// that nothing is read or reported, so that what an earlier run of the agent has published stays.
	Ready func() bool
	// MachineInfo returns the hardware. The result is not modified.
	MachineInfo func() (*cadvisorapi.MachineInfo, error)
	// Pods returns the pods that use resources of the node. Those that have ended are left out.
	Pods func() []*v1.Pod
	// Policy and Scope are those of the topology manager, as the configuration of the kubelet names them.
	Policy, Scope string
	// OnlyNUMABound returns whether only containers that are bound to a NUMA node are reported as allocations. It may
	// change at any time.
	OnlyNUMABound func() bool
	Clock         clock.WithTicker
}
