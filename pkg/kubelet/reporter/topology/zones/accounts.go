package zones

import (
	"math"
	"math/bits"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
)

// nowhere stands for no NUMA node.
const nowhere = -1

// accounts are the facts by NUMA node and device.
type accounts struct {
	options Options
	nodes   map[int]*numaNode
	// nodeOf is the NUMA node of each CPU.
	nodeOf  map[int]int
	devices map[deviceKey]*device
	// countOf is how many devices there are of a resource.
	countOf map[string]int
}

type numaNode struct {
	hardware    *NUMANode
	allocatable *amount
	// devices are the devices of each resource, those that are not healthy but in use included.
	devices map[string]sets.Set[string]
	// pods is what each consumer has.
	pods map[string]*amount
}

type deviceKey struct{ resource, id string }

type device struct {
	nodes       []int
	allocatable bool
	consumers   sets.Set[string]
}

func newAccounts(facts *Facts, options Options) *accounts {
	a := &accounts{
		options: options, nodes: map[int]*numaNode{}, nodeOf: map[int]int{}, devices: map[deviceKey]*device{},
		countOf: map[string]int{},
	}
	for i := range facts.NUMANodes {
		a.addNode(&facts.NUMANodes[i])
	}
	for _, cpu := range facts.AllocatableCPUs {
		if id, known := a.nodeOf[cpu]; known {
			a.nodes[id].allocatable.addCPUs([]int{cpu})
		}
	}
	for i := range facts.AllocatableMemory {
		a.addMemory(&facts.AllocatableMemory[i], a.hardwareMemory, func(id int) *amount { return a.nodes[id].allocatable })
	}
	for i := range facts.AllocatableDevices {
		given := &facts.AllocatableDevices[i]
		a.addDevice(given).allocatable = true
	}
	for i := range facts.Pods {
		for j := range facts.Pods[i].Containers {
			a.addContainer(facts.Pods[i].Consumer, &facts.Pods[i].Containers[j])
		}
	}
	for key, device := range a.devices {
		a.countDevice(key, device)
	}
	return a
}

func (a *accounts) addNode(hardware *NUMANode) {
	if _, twice := a.nodes[hardware.ID]; twice || hardware.ID < 0 {
		return
	}
	a.nodes[hardware.ID] = &numaNode{
		hardware: hardware, allocatable: newAmount(), devices: map[string]sets.Set[string]{}, pods: map[string]*amount{},
	}
	for _, cpu := range hardware.CPUs {
		if _, twice := a.nodeOf[cpu]; !twice {
			a.nodeOf[cpu] = hardware.ID
		}
	}
}

// addContainer adds what a container has. All its devices are known before they are counted, since the NUMA nodes of a
// device come from its plugin as well as from its allocation.
func (a *accounts) addContainer(consumer string, c *Container) {
	if a.options.OnlyNUMABound && !a.bound(c) {
		for i := range c.Devices {
			a.addDevice(&c.Devices[i])
		}
		return
	}
	for _, cpu := range c.CPUs {
		if id, known := a.nodeOf[cpu]; known {
			a.of(consumer, id).addCPUs([]int{cpu})
		}
	}
	for i := range c.Memory {
		a.addMemory(&c.Memory[i], a.allocatableMemory, func(id int) *amount { return a.of(consumer, id) })
	}
	for i := range c.Devices {
		a.addDevice(&c.Devices[i]).consumers.Insert(consumer)
	}
}

// bound returns whether the container's own CPUs and memory are of one NUMA node.
func (a *accounts) bound(c *Container) bool {
	on := sets.New[int]()
	for _, cpu := range c.CPUs {
		if id, known := a.nodeOf[cpu]; known {
			on.Insert(id)
		}
	}
	for i := range c.Memory {
		on.Insert(c.Memory[i].Nodes...)
	}
	return on.Len() == 1
}

// of returns what a consumer has of a NUMA node.
func (a *accounts) of(consumer string, id int) *amount {
	pods := a.nodes[id].pods
	if pods[consumer] == nil {
		pods[consumer] = newAmount()
	}
	return pods[consumer]
}

func (a *accounts) hardwareMemory(id int, _ string) uint64 { return a.nodes[id].hardware.Memory }

func (a *accounts) allocatableMemory(id int, resource string) uint64 {
	return a.nodes[id].allocatable.bytes[resource]
}

// addMemory divides memory among its NUMA nodes, in proportion to the weights of these.
func (a *accounts) addMemory(m *Memory, weight func(id int, resource string) uint64, to func(id int) *amount) {
	nodes := a.known(m.Nodes)
	weights := make([]uint64, len(nodes))
	for i, id := range nodes {
		weights[i] = weight(id, m.Resource)
	}
	for i, share := range divide(m.Bytes, weights) {
		if share > 0 {
			to(nodes[i]).addBytes(m.Resource, share)
		}
	}
}

// divide divides n in proportion to the weights, in equal parts if all are 0. The parts add up to n. None is greater
// than its weight unless n is greater than all weights together.
func divide(n uint64, weights []uint64) (parts []uint64) {
	var sum uint64
	for _, w := range weights {
		var carry uint64
		if sum, carry = bits.Add64(sum, w, 0); carry > 0 {
			sum = 0 // no machine has that much memory
			break
		}
	}
	if sum == 0 {
		weights = slices.Repeat([]uint64{1}, len(weights))
		sum = uint64(len(weights))
	}
	var before, reached uint64
	for _, w := range weights {
		reached += w
		high, low := bits.Mul64(n, reached)
		upTo, _ := bits.Div64(high, low, sum) // at most n, since reached is at most sum
		parts = append(parts, upTo-before)
		before = upTo
	}
	return parts
}

func (a *accounts) known(nodes []int) []int {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(id int) bool { return a.nodes[id] == nil })
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// addDevice returns the account of a device, which has the NUMA nodes that any of the facts names.
func (a *accounts) addDevice(given *Device) *device {
	key := deviceKey{given.Resource, given.ID}
	if a.devices[key] == nil {
		a.devices[key] = &device{consumers: sets.New[string]()}
		a.countOf[key.resource]++
	}
	a.devices[key].nodes = append(a.devices[key].nodes, given.Nodes...)
	return a.devices[key]
}

// countDevice adds a device to its NUMA nodes and to what its consumers have of them.
func (a *accounts) countDevice(key deviceKey, d *device) {
	d.nodes = a.known(d.nodes)
	if len(d.nodes) == 0 && len(a.nodes) == 1 {
		for id := range a.nodes {
			d.nodes = []int{id}
		}
	}
	for _, id := range d.nodes {
		addDevice(a.nodes[id].devices, key)
		allocatable := a.nodes[id].allocatable.devices
		if allocatable[key.resource] == nil {
			allocatable[key.resource] = sets.New[string]()
		}
		if d.allocatable {
			addDevice(allocatable, key)
		}
		for consumer := range d.consumers {
			addDevice(a.of(consumer, id).devices, key)
		}
	}
	if len(d.nodes) == 0 {
		d.nodes = []int{nowhere}
	}
}

// amount is what there is of a zone, or what a consumer has of it.
type amount struct {
	cpus sets.Set[int]
	// bytes are those of memory and of huge pages, devices the IDs of each resource.
	bytes   map[string]uint64
	devices map[string]sets.Set[string]
}

func newAmount() *amount {
	return &amount{cpus: sets.New[int](), bytes: map[string]uint64{}, devices: map[string]sets.Set[string]{}}
}

func (a *amount) addCPUs(cpus []int)                 { a.cpus.Insert(cpus...) }
func (a *amount) addBytes(resource string, n uint64) { a.bytes[resource] += n }

func addDevice(devices map[string]sets.Set[string], key deviceKey) {
	if devices[key.resource] == nil {
		devices[key.resource] = sets.New[string]()
	}
	devices[key.resource].Insert(key.id)
}

// list returns the quantities; nil if there are none.
func (a *amount) list() *v1.ResourceList {
	list := v1.ResourceList{}
	if n := a.cpus.Len(); n > 0 {
		list[v1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	for name, n := range a.bytes {
		list[v1.ResourceName(name)] = *resource.NewQuantity(int64(min(n, math.MaxInt64)), resource.BinarySI)
	}
	for name, ids := range a.devices {
		list[v1.ResourceName(name)] = *resource.NewQuantity(int64(ids.Len()), resource.DecimalSI)
	}
	if len(list) == 0 {
		return nil
	}
	return &list
}
