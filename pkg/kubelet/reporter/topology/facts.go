package topology

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/topology/zones"
)

// readFacts reads the machine and the managers. All lists are sorted: equal facts are equal values.
func readFacts(c *Config) (*zones.Facts, error) {
	machine, err := c.MachineInfo()
	if err != nil {
		return nil, fmt.Errorf("read the hardware of the machine: %w", err)
	}
	if machine == nil {
		return nil, errors.New("the hardware of the machine is not known")
	}
	facts := &zones.Facts{
		NUMANodes:          numaNodes(machine.Topology),
		AllocatableCPUs:    cpus(c.Managers.GetAllocatableCPUs()),
		AllocatableMemory:  memory(c.Managers.GetAllocatableMemory()),
		AllocatableDevices: devices(c.Managers.GetAllocatableDevices()),
	}
	for _, pod := range c.Pods() {
		if pod == nil || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		if containers := containers(c.Managers, pod); len(containers) > 0 {
			facts.Pods = append(facts.Pods, zones.Pod{
				Consumer: fmt.Sprintf("%s/%s/%s", pod.Namespace, pod.Name, pod.UID), Containers: containers,
			})
		}
	}
	slices.SortFunc(facts.Pods, func(a, b zones.Pod) int { return cmp.Compare(a.Consumer, b.Consumer) })
	return facts, nil
}

// numaNodes returns the NUMA nodes of a machine, sorted by ID.
func numaNodes(topology []cadvisorapi.Node) (nodes []zones.NUMANode) {
	for i := range topology {
		given := &topology[i]
		n := zones.NUMANode{ID: given.Id, Socket: socketOf(given), Memory: given.Memory}
		for _, core := range given.Cores {
			n.CPUs = append(n.CPUs, core.Threads...)
		}
		slices.Sort(n.CPUs)
		for _, pages := range given.HugePages {
			n.HugePages = append(n.HugePages, zones.HugePages{Size: pages.PageSize * 1024, Count: pages.NumPages})
		}
		slices.SortFunc(n.HugePages, func(a, b zones.HugePages) int { return cmp.Compare(a.Size, b.Size) })
		nodes = append(nodes, n)
	}
	slices.SortStableFunc(nodes, func(a, b zones.NUMANode) int { return cmp.Compare(a.ID, b.ID) })
	return nodes
}

// socketOf returns the lowest ID of the sockets that the cores of a NUMA node are of; -1 if none is known. Nodes that
// span sockets are made by firmware and hypervisors only.
func socketOf(n *cadvisorapi.Node) int {
	socket := -1
	for _, core := range n.Cores {
		if core.SocketID >= 0 && (socket < 0 || core.SocketID < socket) {
			socket = core.SocketID
		}
	}
	return socket
}

// containers returns what the managers have allocated to the containers of a pod, init containers included; ephemeral
// containers have nothing of their own.
func containers(m Managers, pod *v1.Pod) (list []zones.Container) {
	uid := string(pod.UID)
	for _, all := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range all {
			name := all[i].Name
			c := zones.Container{
				CPUs: cpus(m.GetCPUs(uid, name)), Memory: memory(m.GetMemory(uid, name)), Devices: devices(m.GetDevices(uid, name)),
			}
			if len(c.CPUs)+len(c.Memory)+len(c.Devices) > 0 {
				list = append(list, c)
			}
		}
	}
	return list
}

func cpus(given []int64) (list []int) {
	for _, cpu := range given {
		list = append(list, int(cpu))
	}
	slices.Sort(list)
	return list
}

func memory(given []*podresourcesapi.ContainerMemory) (list []zones.Memory) {
	for _, m := range given {
		if m.GetSize() > 0 {
			list = append(list, zones.Memory{
				Resource: m.GetMemoryType(), Bytes: m.GetSize(), Nodes: nodes(m.GetTopology()),
			})
		}
	}
	slices.SortFunc(list, func(a, b zones.Memory) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), slices.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Bytes, b.Bytes))
	})
	return list
}

func devices(given []*podresourcesapi.ContainerDevices) (list []zones.Device) {
	for _, d := range given {
		for _, id := range d.GetDeviceIds() {
			list = append(list, zones.Device{Resource: d.GetResourceName(), ID: id, Nodes: nodes(d.GetTopology())})
		}
	}
	slices.SortFunc(list, func(a, b zones.Device) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.ID, b.ID), slices.Compare(a.Nodes, b.Nodes))
	})
	return list
}

func nodes(t *podresourcesapi.TopologyInfo) (ids []int) {
	for _, n := range t.GetNodes() {
		ids = append(ids, int(n.GetID()))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
