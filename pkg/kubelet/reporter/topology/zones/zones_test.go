package zones_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/topology/zones"
)

const gi = uint64(1) << 30

// randomFacts are those of a machine with up to two sockets of up to three NUMA nodes of up to four CPUs, and pods that
// have anything of it, and of what is not there.
func randomFacts(r *rand.Rand) *zones.Facts {
	f := &zones.Facts{}
	cpu := 0
	for id := range r.IntN(7) {
		n := zones.NUMANode{ID: id, Socket: r.IntN(3) - 1, Memory: uint64(r.IntN(3)) * gi}
		for range r.IntN(5) {
			n.CPUs = append(n.CPUs, cpu)
			cpu++
		}
		if r.IntN(2) == 0 {
			n.HugePages = []zones.HugePages{{Size: 2 << 20, Count: r.Uint64N(100)}, {Size: gi, Count: r.Uint64N(3)}}
		}
		f.NUMANodes = append(f.NUMANodes, n)
		if r.IntN(4) > 0 {
			f.AllocatableMemory = append(f.AllocatableMemory, randomMemory(r))
		}
	}
	for id := range cpu {
		if r.IntN(3) > 0 {
			f.AllocatableCPUs = append(f.AllocatableCPUs, id)
		}
	}
	for range r.IntN(6) {
		f.AllocatableDevices = append(f.AllocatableDevices, randomDevice(r))
	}
	for i := range r.IntN(5) {
		pod := zones.Pod{Consumer: fmt.Sprintf("ns/pod-%d/uid", i)}
		for range r.IntN(4) {
			c := zones.Container{}
			for range r.IntN(3) {
				c.CPUs = append(c.CPUs, r.IntN(cpu+2))
			}
			for range r.IntN(3) {
				c.Memory = append(c.Memory, randomMemory(r))
			}
			for range r.IntN(3) {
				c.Devices = append(c.Devices, randomDevice(r))
			}
			pod.Containers = append(pod.Containers, c)
		}
		f.Pods = append(f.Pods, pod)
	}
	return f
}

func randomMemory(r *rand.Rand) zones.Memory {
	return zones.Memory{
		Resource: []string{"memory", "hugepages-2Mi"}[r.IntN(2)], Bytes: r.Uint64N(4 * gi), Nodes: randomNodes(r),
	}
}

func randomDevice(r *rand.Rand) zones.Device {
	return zones.Device{
		Resource: []string{"nvidia.com/gpu", "amd.com/gpu", "example.com/card"}[r.IntN(3)], ID: fmt.Sprint(r.IntN(4)),
		Nodes: randomNodes(r),
	}
}

// randomNodes may name a node twice, and nodes that are not there.
func randomNodes(r *rand.Rand) (ids []int) {
	for range r.IntN(4) {
		ids = append(ids, r.IntN(8)-1)
	}
	return ids
}

func shuffled[E any](r *rand.Rand, list []E) []E {
	list = slices.Clone(list)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// permuted has the same facts in another order.
func permuted(r *rand.Rand, f *zones.Facts) *zones.Facts {
	p := &zones.Facts{
		NUMANodes: shuffled(r, f.NUMANodes), AllocatableCPUs: shuffled(r, f.AllocatableCPUs),
		AllocatableMemory:  shuffled(r, f.AllocatableMemory),
		AllocatableDevices: shuffled(r, f.AllocatableDevices), Pods: shuffled(r, f.Pods),
	}
	for i := range p.NUMANodes {
		p.NUMANodes[i].CPUs = shuffled(r, p.NUMANodes[i].CPUs)
		p.NUMANodes[i].HugePages = shuffled(r, p.NUMANodes[i].HugePages)
	}
	for i := range p.Pods {
		p.Pods[i].Containers = shuffled(r, p.Pods[i].Containers)
		for j := range p.Pods[i].Containers {
			c := &p.Pods[i].Containers[j]
			*c = zones.Container{
				CPUs: shuffled(r, c.CPUs), Memory: shuffled(r, c.Memory), Devices: shuffled(r, c.Devices),
			}
		}
	}
	return p
}

func encode(t *testing.T, list []node.TopologyZone) string {
	t.Helper()
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func forRandomFacts(t *testing.T, check func(t *testing.T, r *rand.Rand, f *zones.Facts, o zones.Options)) {
	t.Helper()
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 14))
		f := randomFacts(r)
		check(t, r, f, zones.Options{OnlyNUMABound: r.IntN(2) == 0, NoDeviceZones: r.IntN(4) == 0})
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, f)
		}
	}
}

func TestOrderOfFactsIsOfNoAccount(t *testing.T) {
	forRandomFacts(t, func(t *testing.T, r *rand.Rand, f *zones.Facts, o zones.Options) {
		before := encode(t, zones.New(f, o))
		if after := encode(t, zones.New(permuted(r, f), o)); after != before {
			t.Errorf("another order gives\n%s\nafter\n%s", after, before)
		}
	})
}

// Nothing of what is made is refused by the merge, two times the same facts are no conflict, and no quantity is
// negative.
func TestMerges(t *testing.T) {
	forRandomFacts(t, func(t *testing.T, _ *rand.Rand, f *zones.Facts, o zones.Options) {
		made := zones.New(f, o)
		content := []merge.Content{{Kind: node.GroupVersionKind, Fields: []merge.ReportField{{
			Part: merge.Status, Name: "TopologyZone", Value: []byte(encode(t, made)),
		}}}}
		result := merge.Merge([]merge.Report{{Plugin: "a", Contents: content}, {Plugin: "b", Contents: content}},
			merge.Options{})
		if len(result.Refusals)+len(result.Conflicts) > 0 {
			t.Errorf("refused %v, conflicts %v", result.Refusals, result.Conflicts)
		}
		walk(made, func(z *node.TopologyZone, _ []*node.TopologyZone) {
			for _, list := range lists(z) {
				for name, q := range list {
					if q.Sign() < 0 {
						t.Errorf("%s %s: %s is negative", z.Type, z.Name, name)
					}
				}
			}
		})
	})
}

// walk visits all zones, each with those that it is in.
func walk(list []node.TopologyZone, visit func(z *node.TopologyZone, in []*node.TopologyZone)) {
	var down func(list []node.TopologyZone, in []*node.TopologyZone)
	down = func(list []node.TopologyZone, in []*node.TopologyZone) {
		for i := range list {
			visit(&list[i], in)
			down(list[i].Children, append(slices.Clone(in), &list[i]))
		}
	}
	down(list, nil)
}

func lists(z *node.TopologyZone) (all []v1.ResourceList) {
	for _, list := range []*v1.ResourceList{z.Resources.Capacity, z.Resources.Allocatable} {
		if list != nil {
			all = append(all, *list)
		}
	}
	for _, a := range z.Allocations {
		all = append(all, *a.Requests)
	}
	return all
}

func quantity(list *v1.ResourceList, name string) int64 {
	if list == nil {
		return 0
	}
	q := (*list)[v1.ResourceName(name)]
	return q.Value()
}

// Each NUMA node is one zone, in its socket. What the zones say in all is what the facts say in all.
func TestSums(t *testing.T) {
	forRandomFacts(t, func(t *testing.T, _ *rand.Rand, f *zones.Facts, _ zones.Options) {
		made := zones.New(f, zones.Options{})
		seen := map[string]int{}
		got := map[string]int64{}
		walk(made, func(z *node.TopologyZone, in []*node.TopologyZone) {
			if z.Type != node.TopologyTypeNuma {
				return
			}
			path := z.Name
			if len(in) > 0 {
				path = string(in[0].Type) + in[0].Name + "/" + path
			}
			seen[path]++
			for _, name := range []string{"cpu", "memory", "hugepages-2Mi"} {
				got["capacity "+name] += quantity(z.Resources.Capacity, name)
				got["allocatable "+name] += quantity(z.Resources.Allocatable, name)
				for _, a := range z.Allocations {
					got[a.Consumer+" "+name] += quantity(a.Requests, name)
				}
			}
		})
		want := map[string]int64{}
		nodeOf := map[int]bool{}
		known := map[int]bool{}
		for _, n := range f.NUMANodes {
			path := fmt.Sprint(n.ID)
			if n.Socket >= 0 {
				path = fmt.Sprintf("Socket%d/%d", n.Socket, n.ID)
			}
			if seen[path] != 1 {
				t.Errorf("node %s is there %d times", path, seen[path])
			}
			known[n.ID] = true
			want["capacity cpu"] += int64(len(n.CPUs))
			want["capacity memory"] += int64(n.Memory)
			for _, pages := range n.HugePages {
				if pages.Size == 2<<20 {
					want["capacity hugepages-2Mi"] += int64(pages.Size * pages.Count)
				}
			}
			for _, cpu := range n.CPUs {
				nodeOf[cpu] = true
			}
		}
		if len(seen) != len(f.NUMANodes) {
			t.Errorf("%d NUMA nodes, want %d", len(seen), len(f.NUMANodes))
		}
		want["allocatable cpu"] = int64(len(f.AllocatableCPUs))
		addMemory := func(to string, m *zones.Memory) {
			if slices.ContainsFunc(m.Nodes, func(id int) bool { return known[id] }) {
				want[to+" "+m.Resource] += int64(m.Bytes)
			}
		}
		for i := range f.AllocatableMemory {
			addMemory("allocatable", &f.AllocatableMemory[i])
		}
		for _, pod := range f.Pods {
			cpus := sets.New[int]()
			for _, c := range pod.Containers {
				for _, cpu := range c.CPUs {
					if nodeOf[cpu] {
						cpus.Insert(cpu)
					}
				}
				for i := range c.Memory {
					addMemory(pod.Consumer, &c.Memory[i])
				}
			}
			want[pod.Consumer+" cpu"] = int64(cpus.Len())
		}
		for key := range want {
			if got[key] != want[key] {
				t.Errorf("%s: %d, want %d", key, got[key], want[key])
			}
		}
		for key := range got {
			if got[key] != want[key] {
				t.Errorf("%s: %d, want %d", key, got[key], want[key])
			}
		}
	})
}

// What a NUMA node has of devices is as many as there are zones of devices in it, and so is what pods have of them.
func TestDevicesAreCountedAndAreZones(t *testing.T) {
	forRandomFacts(t, func(t *testing.T, _ *rand.Rand, f *zones.Facts, o zones.Options) {
		o.NoDeviceZones = false
		devices := sets.New[string]()
		for _, z := range zones.New(f, o) {
			walk([]node.TopologyZone{z}, func(z *node.TopologyZone, _ []*node.TopologyZone) {
				sums := map[string]int64{}
				add := func(sign int64, z *node.TopologyZone) {
					for _, name := range []string{"nvidia.com/gpu", "amd.com/gpu", "example.com/card"} {
						sums["capacity "+name] += sign * quantity(z.Resources.Capacity, name)
						sums["allocatable "+name] += sign * quantity(z.Resources.Allocatable, name)
						for _, a := range z.Allocations {
							sums[a.Consumer+" "+name] += sign * quantity(a.Requests, name)
						}
						if z.Type != node.TopologyTypeNuma && quantity(z.Resources.Capacity, name) > 0 {
							devices.Insert(name + " " + z.Name)
						}
					}
				}
				if z.Type == node.TopologyTypeSocket {
					return
				}
				add(1, z)
				if z.Type != node.TopologyTypeNuma {
					return
				}
				for i := range z.Children {
					add(-1, &z.Children[i])
				}
				for what, n := range sums {
					if n != 0 {
						t.Errorf("Numa %s: %s differs from its zones by %d", z.Name, what, n)
					}
				}
			})
		}
		want := sets.New[string]()
		for _, d := range f.AllocatableDevices {
			want.Insert(d.Resource + " " + d.ID)
		}
		for _, pod := range f.Pods {
			for _, c := range pod.Containers {
				for _, d := range c.Devices {
					want.Insert(d.Resource + " " + d.ID)
				}
			}
		}
		if !devices.Equal(want) {
			t.Errorf("devices %v, want %v", sets.List(devices), sets.List(want))
		}
	})
}

// With the option, the allocations are those of the facts without the containers that are not bound.
func TestOnlyNUMABound(t *testing.T) {
	forRandomFacts(t, func(t *testing.T, _ *rand.Rand, f *zones.Facts, o zones.Options) {
		nodeOf := map[int]int{}
		for _, n := range f.NUMANodes {
			for _, cpu := range n.CPUs {
				nodeOf[cpu] = n.ID
			}
		}
		o.OnlyNUMABound = true
		bound := zones.New(f, o)
		less := *f
		less.Pods = nil
		for _, pod := range f.Pods {
			kept := zones.Pod{Consumer: pod.Consumer}
			for _, c := range pod.Containers {
				on := sets.New[int]()
				for _, cpu := range c.CPUs {
					if id, known := nodeOf[cpu]; known {
						on.Insert(id)
					}
				}
				for _, m := range c.Memory {
					on.Insert(m.Nodes...)
				}
				if on.Len() == 1 {
					kept.Containers = append(kept.Containers, c)
				} else { // where its devices are is known nevertheless
					less.AllocatableDevices = slices.Concat(less.AllocatableDevices, c.Devices)
				}
			}
			less.Pods = append(less.Pods, kept)
		}
		o.OnlyNUMABound = false
		if got, want := consumption(bound), consumption(zones.New(&less, o)); got != want {
			t.Errorf("allocations %s, want %s", got, want)
		}
	})
}

// consumption has all allocations by zone.
func consumption(list []node.TopologyZone) string {
	var lines []string
	walk(list, func(z *node.TopologyZone, _ []*node.TopologyZone) {
		for _, a := range z.Allocations {
			data, _ := json.Marshal(a)
			lines = append(lines, fmt.Sprintf("%s/%s: %s", z.Type, z.Name, data))
		}
	})
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

func oneNode(devices ...zones.Device) *zones.Facts {
	return &zones.Facts{
		NUMANodes:          []zones.NUMANode{{ID: 0, CPUs: []int{0, 1}, Memory: gi}},
		AllocatableDevices: devices,
	}
}

// Many devices of a resource are counted, and are no zones.
func TestManyDevices(t *testing.T) {
	for _, n := range []int{zones.MaxDevicesOfResource, zones.MaxDevicesOfResource + 1} {
		var devices []zones.Device
		for i := range n {
			devices = append(devices, zones.Device{Resource: "devices.kubevirt.io/kvm", ID: fmt.Sprintf("kvm%d", i)})
		}
		numa := zones.New(oneNode(devices...), zones.Options{})[0].Children[0]
		if got := quantity(numa.Resources.Allocatable, "devices.kubevirt.io/kvm"); got != int64(n) {
			t.Errorf("%d of %d devices are counted", got, n)
		}
		want := n
		if n > zones.MaxDevicesOfResource {
			want = 0
		}
		if len(numa.Children) != want {
			t.Errorf("%d of %d devices are zones", len(numa.Children), n)
		}
	}
}

// Memory on more than one NUMA node is divided so that no node has more than can be allocated there.
func TestMemoryOnManyNodes(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		f := &zones.Facts{}
		memory := zones.Memory{Resource: "memory"}
		var total uint64
		for id := range 1 + r.IntN(4) {
			size := 1 + r.Uint64N(1<<(10+r.UintN(35)))
			f.NUMANodes = append(f.NUMANodes, zones.NUMANode{ID: id, Memory: size})
			f.AllocatableMemory = append(f.AllocatableMemory,
				zones.Memory{Resource: "memory", Bytes: size, Nodes: []int{id}})
			memory.Nodes = append(memory.Nodes, id)
			total += size
		}
		memory.Bytes = 1 + r.Uint64N(total)
		f.Pods = []zones.Pod{{Consumer: "a/b/c", Containers: []zones.Container{{Memory: []zones.Memory{memory}}}}}
		var sum int64
		for _, z := range zones.New(f, zones.Options{})[0].Children {
			for _, a := range z.Allocations {
				n := quantity(a.Requests, "memory")
				sum += n
				if n > quantity(z.Resources.Allocatable, "memory") {
					t.Errorf("seed %d: Numa %s has more than can be allocated", seed, z.Name)
				}
			}
		}
		if sum != int64(memory.Bytes) {
			t.Errorf("seed %d: %d bytes in all, want %d", seed, sum, memory.Bytes)
		}
	}
}

// Amounts that no machine has overflow nothing.
func TestGreatAmounts(t *testing.T) {
	f := oneNode()
	f.NUMANodes[0].Memory = 1<<64 - 1
	f.NUMANodes = append(f.NUMANodes, zones.NUMANode{ID: 1, Memory: 1<<64 - 1}, zones.NUMANode{ID: 0},
		zones.NUMANode{ID: -1})
	f.AllocatableMemory = []zones.Memory{
		{Resource: "memory", Bytes: 1<<64 - 1, Nodes: []int{0}}, {Resource: "memory", Bytes: 1<<64 - 1, Nodes: []int{1}},
	}
	f.Pods = []zones.Pod{{Consumer: "a/b/c", Containers: []zones.Container{
		{Memory: []zones.Memory{{Resource: "memory", Bytes: 1<<64 - 1, Nodes: []int{0, 1}}}},
	}}}
	walk(zones.New(f, zones.Options{}), func(z *node.TopologyZone, _ []*node.TopologyZone) {
		for _, list := range lists(z) {
			for name, q := range list {
				if q.Cmp(*resource.NewQuantity(0, resource.DecimalSI)) < 0 {
					t.Errorf("%s %s: %s is %s", z.Type, z.Name, name, q.String())
				}
			}
		}
	})
}

// The names of numbers are sorted as numbers.
func TestOrderOfZones(t *testing.T) {
	f := &zones.Facts{}
	for id := range 12 {
		f.NUMANodes = append(f.NUMANodes, zones.NUMANode{ID: id, Socket: 11 - id})
	}
	var names []string
	for _, z := range zones.New(f, zones.Options{}) {
		names = append(names, z.Name)
	}
	if got := strings.Join(names, " "); got != "0 1 2 3 4 5 6 7 8 9 10 11" {
		t.Errorf("sockets in the order %s", got)
	}
}
