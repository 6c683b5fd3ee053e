package zones

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
)

// MaxDevicesOfResource is the greatest number of devices of a resource that are zones. Resources that are no hardware,
// such as devices.kubevirt.io/kvm, have a thousand and more.
const MaxDevicesOfResource = 64

// Options are the settings of New.
type Options struct {
	// OnlyNUMABound leaves out the allocations of containers that are not bound to a NUMA node.
	OnlyNUMABound bool
	// NoDeviceZones leaves out the zones of devices. They count in those of their NUMA nodes nevertheless.
	NoDeviceZones bool
}

// New returns the outermost zones. They are sorted by type and name, numbers as numbers, as are the zones in them.
func New(facts *Facts, options Options) []node.TopologyZone {
	a := newAccounts(facts, options)
	sockets := map[int][]node.TopologyZone{}
	var outermost []node.TopologyZone
	for _, id := range slices.Sorted(maps.Keys(a.nodes)) {
		numa := a.nodes[id]
		zone := node.TopologyZone{
			Type: node.TopologyTypeNuma, Name: strconv.Itoa(id),
			Resources: node.Resources{
				Capacity: numa.capacity(), Allocatable: numa.allocatable.list(),
			},
			Allocations: allocations(numa.pods),
			Children:    a.deviceZones(id),
		}
		if numa.hardware.Socket < 0 {
			outermost = append(outermost, zone)
		} else {
			sockets[numa.hardware.Socket] = append(sockets[numa.hardware.Socket], zone)
		}
	}
	for id, zones := range sockets {
		outermost = append(outermost, node.TopologyZone{
			Type: node.TopologyTypeSocket, Name: strconv.Itoa(id), Children: zones,
		})
	}
	outermost = append(outermost, a.deviceZones(nowhere)...)
	slices.SortFunc(outermost, compareZones)
	return outermost
}

// capacity is that of the hardware, and all devices that are healthy or in use.
func (n *numaNode) capacity() *v1.ResourceList {
	all := newAmount()
	all.addCPUs(n.hardware.CPUs)
	if n.hardware.Memory > 0 {
		all.addBytes(string(v1.ResourceMemory), n.hardware.Memory)
	}
	for _, pages := range n.hardware.HugePages {
		if pages.Size > 0 {
			all.addBytes(hugePagesResource(pages.Size), pages.Size*pages.Count)
		}
	}
	all.devices = n.devices
	return all.list()
}

func hugePagesResource(size uint64) string {
	return v1.ResourceHugePagesPrefix + resource.NewQuantity(int64(size), resource.BinarySI).String()
}

func allocations(pods map[string]*amount) (list []node.Allocation) {
	for _, consumer := range slices.Sorted(maps.Keys(pods)) {
		if requests := pods[consumer].list(); requests != nil {
			list = append(list, node.Allocation{Consumer: consumer, Requests: requests})
		}
	}
	return list
}

// deviceZones returns the zones of the devices of a NUMA node, or of none. A device without an ID is none: a zone has a
// name.
func (a *accounts) deviceZones(id int) (zones []node.TopologyZone) {
	for key, device := range a.devices {
		if a.options.NoDeviceZones || a.countOf[key.resource] > MaxDevicesOfResource || key.id == "" ||
			!slices.Contains(device.nodes, id) {
			continue
		}
		zone := zoneOf(zones, deviceType(key.resource), key.id)
		if zone == nil {
			zones = append(zones, node.TopologyZone{Type: deviceType(key.resource), Name: key.id})
			zone = &zones[len(zones)-1]
			zone.Resources = node.Resources{Capacity: &v1.ResourceList{}, Allocatable: &v1.ResourceList{}}
		}
		name := v1.ResourceName(key.resource)
		(*zone.Resources.Capacity)[name] = *one()
		if device.allocatable {
			(*zone.Resources.Allocatable)[name] = *one()
		} else {
			(*zone.Resources.Allocatable)[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
		for consumer := range device.consumers {
			zone.Allocations = allocate(zone.Allocations, consumer, name)
		}
	}
	for i := range zones {
		slices.SortFunc(zones[i].Allocations, func(a, b node.Allocation) int { return cmp.Compare(a.Consumer, b.Consumer) })
	}
	slices.SortFunc(zones, compareZones)
	return zones
}

func one() *resource.Quantity { return resource.NewQuantity(1, resource.DecimalSI) }

// zoneOf returns the zone of that type and name: two resources may have devices of the same type and ID.
func zoneOf(zones []node.TopologyZone, t node.TopologyType, name string) *node.TopologyZone {
	i := slices.IndexFunc(zones, func(z node.TopologyZone) bool { return z.Type == t && z.Name == name })
	if i < 0 {
		return nil
	}
	return &zones[i]
}

// allocate adds one of a resource to what a consumer has.
func allocate(list []node.Allocation, consumer string, name v1.ResourceName) []node.Allocation {
	i := slices.IndexFunc(list, func(a node.Allocation) bool { return a.Consumer == consumer })
	if i < 0 {
		return append(list, node.Allocation{Consumer: consumer, Requests: &v1.ResourceList{name: *one()}})
	}
	(*list[i].Requests)[name] = *one()
	return list
}

// deviceType returns the type of the zone of a device: one of Katalyst's, if the last word of the name of the resource
// says so, else the name of the resource.
func deviceType(name string) node.TopologyType {
	switch name[strings.LastIndex(name, "/")+1:] {
	case "gpu":
		return node.TopologyTypeGPU
	case "nic":
		return node.TopologyTypeNIC
	case "storage":
		return node.TopologyTypeStorage
	default:
		return node.TopologyType(name)
	}
}

func compareZones(a, b node.TopologyZone) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), compareNames(a.Name, b.Name))
}

// compareNames compares numbers as numbers, and sorts them before other names.
func compareNames(a, b string) int {
	m, errA := strconv.Atoi(a)
	n, errB := strconv.Atoi(b)
	switch {
	case errA == nil && errB == nil:
		return cmp.Or(cmp.Compare(m, n), cmp.Compare(a, b))
	case errA == nil:
		return -1
	case errB == nil:
		return 1
	default:
		return cmp.Compare(a, b)
	}
}
