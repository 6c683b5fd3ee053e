package topology_test

import (
	"fmt"
	"slices"
	"sync"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// node is a machine with its managers and pods. Its answers are in the form of stock's managers: a device once per NUMA
// node, and nothing in a certain order.
type node struct {
	mu         sync.Mutex
	machine    *cadvisorapi.MachineInfo
	machineErr error
	ready      bool
	bound      bool
	pods       []*v1.Pod
	reads      int

	cpus    map[string][]int64
	memory  map[string][]*podresourcesapi.ContainerMemory
	devices map[string][]*podresourcesapi.ContainerDevices

	allocatableCPUs    []int64
	allocatableMemory  []*podresourcesapi.ContainerMemory
	allocatableDevices []*podresourcesapi.ContainerDevices
}

func newNode(machine *cadvisorapi.MachineInfo) *node {
	return &node{
		machine: machine, ready: true, cpus: map[string][]int64{}, memory: map[string][]*podresourcesapi.ContainerMemory{},
		devices: map[string][]*podresourcesapi.ContainerDevices{},
	}
}

// change changes the node while it is in use.
func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *node) GetCPUs(uid, container string) []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.cpus[uid+"/"+container])
}

func (n *node) GetMemory(uid, container string) []*podresourcesapi.ContainerMemory {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.memory[uid+"/"+container])
}

func (n *node) GetDevices(uid, container string) []*podresourcesapi.ContainerDevices {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.devices[uid+"/"+container])
}

func (n *node) GetAllocatableCPUs() []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	return slices.Clone(n.allocatableCPUs)
}

func (n *node) GetAllocatableMemory() []*podresourcesapi.ContainerMemory {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.allocatableMemory)
}

func (n *node) GetAllocatableDevices() []*podresourcesapi.ContainerDevices {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.allocatableDevices)
}

func (n *node) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.machine, n.machineErr
}

func (n *node) Pods() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.pods)
}

func (n *node) Ready() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ready
}

func (n *node) OnlyNUMABound() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bound
}

// addPod adds a pod with the names of containers, "init:" before those of init containers.
func (n *node) addPod(name string, containers ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}}
	for _, c := range containers {
		if init, ok := cutInit(c); ok {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: init})
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c})
		}
	}
	n.pods = append(n.pods, pod)
	return pod
}

func cutInit(name string) (string, bool) {
	if len(name) > 5 && name[:5] == "init:" {
		return name[5:], true
	}
	return name, false
}

func memoryOn(kind string, size uint64, nodes ...int64) *podresourcesapi.ContainerMemory {
	return &podresourcesapi.ContainerMemory{MemoryType: kind, Size: size, Topology: topologyOf(nodes...)}
}

func deviceOn(resource, id string, nodes ...int64) (list []*podresourcesapi.ContainerDevices) {
	if len(nodes) == 0 {
		return []*podresourcesapi.ContainerDevices{{ResourceName: resource, DeviceIds: []string{id}}}
	}
	for _, n := range nodes {
		list = append(list, &podresourcesapi.ContainerDevices{
			ResourceName: resource, DeviceIds: []string{id}, Topology: topologyOf(n),
		})
	}
	return list
}

func topologyOf(nodes ...int64) *podresourcesapi.TopologyInfo {
	t := &podresourcesapi.TopologyInfo{}
	for _, id := range nodes {
		t.Nodes = append(t.Nodes, &podresourcesapi.NUMANode{ID: id})
	}
	return t
}

const (
	mi = uint64(1) << 20
	gi = uint64(1) << 30
)

// furnished is a machine under the static policies. The first CPU of each NUMA node and 1 GiB of its memory are
// reserved. A pod has all CPUs that are left of the last NUMA node with CPUs. A pod with an init container and a
// sidecar has memory of all NUMA nodes. Devices are near the first, near all, and near none.
func furnished(machine *cadvisorapi.MachineInfo) *node {
	n := newNode(machine)
	var all, last []int64
	for _, numa := range machine.Topology {
		id := int64(numa.Id)
		all = append(all, id)
		left := numa.Memory - gi
		for _, pages := range numa.HugePages {
			if pages.NumPages > 0 {
				left -= pages.PageSize * 1024 * pages.NumPages
				kind := map[uint64]string{2048: "hugepages-2Mi", 1048576: "hugepages-1Gi"}[pages.PageSize]
				n.allocatableMemory = append(n.allocatableMemory, memoryOn(kind, pages.PageSize*1024*pages.NumPages, id))
			}
		}
		n.allocatableMemory = append(n.allocatableMemory, memoryOn("memory", left, id))
		var cpus []int64
		for _, core := range numa.Cores {
			for _, cpu := range core.Threads {
				cpus = append(cpus, int64(cpu))
			}
		}
		if len(cpus) > 0 {
			slices.Sort(cpus)
			last = cpus[1:]
			n.allocatableCPUs = append(n.allocatableCPUs, last...)
		}
	}
	slices.Reverse(n.allocatableCPUs)
	for i := range 3 {
		gpu := deviceOn("nvidia.com/gpu", fmt.Sprintf("GPU-%d", i), all[0])
		n.allocatableDevices = append(n.allocatableDevices, gpu...)
	}
	n.allocatableDevices = append(n.allocatableDevices, deviceOn("example.com/card", "card-0", all...)...)
	n.allocatableDevices = append(n.allocatableDevices, deviceOn("example.com/dongle", "dongle-0")...)

	n.addPod("bound", "c")
	n.cpus["uid-bound/c"] = last
	lastNode := all[0]
	for _, numa := range machine.Topology {
		if len(numa.Cores) > 0 {
			lastNode = int64(numa.Id)
		}
	}
	n.memory["uid-bound/c"] = []*podresourcesapi.ContainerMemory{memoryOn("memory", 512*mi, lastNode)}
	n.devices["uid-bound/c"] = deviceOn("example.com/card", "card-0", all...)

	n.addPod("spread", "init:first", "c", "init:sidecar")
	n.memory["uid-spread/first"] = []*podresourcesapi.ContainerMemory{memoryOn("memory", 0, all...)}
	n.memory["uid-spread/c"] = []*podresourcesapi.ContainerMemory{memoryOn("memory", 3*gi, all...)}
	n.devices["uid-spread/first"] = deviceOn("nvidia.com/gpu", "GPU-1", all[0])
	n.devices["uid-spread/c"] = deviceOn("nvidia.com/gpu", "GPU-1", all[0])
	n.devices["uid-spread/sidecar"] = slices.Concat(deviceOn("example.com/dongle", "dongle-0"),
		deviceOn("nvidia.com/gpu", "GPU-broken", all[0]))

	n.addPod("plain", "c")
	n.addPod("ended", "c").Status.Phase = v1.PodSucceeded
	n.cpus["uid-ended/c"] = []int64{0}
	return n
}
