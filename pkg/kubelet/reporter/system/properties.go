package system

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
)

// facts are what was read of the machine.
type facts struct {
	// numaNodes, cpus and memory (bytes) are 0 if they are not known.
	numaNodes, cpus int
	memory          uint64
	interfaces      []networkInterface
	cpuInfo         cpuInfo
	// dmi are the strings of the firmware that name the maker and the product.
	dmi dmi
}

// networkInterface is a network interface of hardware, or one that bonds others.
type networkInterface struct {
	name string
	// up: it can transmit.
	up bool
	// speed is in Mbit/s; 0 if it is not known.
	speed int64
	// numaNode is negative if it is not known.
	numaNode int
}

// cpuInfo is what all CPUs have in common.
type cpuInfo struct {
	// x86: the CPUs have flags of x86. Other architectures have features instead, under names of their own.
	x86 bool
	// flags are sorted.
	flags []string
}

type dmi struct{ vendor, product string }

// properties returns what is reported, sorted by name.
func properties(f *facts, cpuFlags bool) []node.Property {
	list := []node.Property{}
	addQuantity := func(name string, n uint64, format resource.Format) {
		if n > 0 && n <= math.MaxInt64 {
			list = append(list, node.Property{
				PropertyName: name, PropertyQuantity: resource.NewQuantity(int64(n), format),
			})
		}
	}
	addValues := func(name string, values []string) {
		if len(values) > 0 {
			list = append(list, node.Property{PropertyName: name, PropertyValues: values})
		}
	}
	addQuantity("numa", uint64(max(f.numaNodes, 0)), resource.DecimalSI)
	addQuantity("cpu", uint64(max(f.cpus, 0)), resource.DecimalSI)
	addQuantity("memory", f.memory, resource.BinarySI)
	addQuantity("nbw", bandwidth(f.interfaces), resource.DecimalSI)
	addValues("cis", instructionSets(&f.cpuInfo))
	if cpuFlags && len(f.cpuInfo.flags) > 0 {
		addValues("cpu_flags", []string{strings.Join(f.cpuInfo.flags, ",")})
	}
	addValues("topology", interfaceValues(f.interfaces))
	addValues("is_vm", virtual(f))
	slices.SortFunc(list, func(a, b node.Property) int { return cmp.Compare(a.PropertyName, b.PropertyName) })
	return list
}

// bandwidth returns the speed of the fastest interface that is up.
func bandwidth(interfaces []networkInterface) (fastest uint64) {
	for _, i := range interfaces {
		if i.up && i.speed > 0 {
			fastest = max(fastest, uint64(i.speed))
		}
	}
	return fastest
}

// instructionSets returns Katalyst's names of instruction sets. AVX-512 is a family that builds on avx512f.
func instructionSets(c *cpuInfo) (names []string) {
	for _, set := range []struct{ name, flag string }{{"avx2", "avx2"}, {"avx512", "avx512f"}} {
		if c.x86 && slices.Contains(c.flags, set.flag) {
			names = append(names, set.name)
		}
	}
	return names
}

// interfaceValue is the JSON of an interface. The names of its fields are Katalyst's. Addresses are left out: they
// change while the hardware stays.
type interfaceValue struct {
	Iface    string
	Speed    int64 `json:",omitempty"`
	NumaNode *int  `json:",omitempty"`
	Enable   bool
}

func interfaceValues(interfaces []networkInterface) (values []string) {
	sorted := slices.SortedFunc(slices.Values(interfaces), func(a, b networkInterface) int {
		return cmp.Compare(a.name, b.name)
	})
	for _, i := range sorted {
		v := interfaceValue{Iface: i.name, Speed: max(i.speed, 0), Enable: i.up}
		if i.numaNode >= 0 {
			v.NumaNode = &i.numaNode
		}
		if encoded, err := json.Marshal(v); err == nil {
			values = append(values, string(encoded))
		}
	}
	return values
}

// virtual returns whether the machine is a virtual one. On x86 the flag hypervisor says so: the kernel sets it when it
// runs on one. Elsewhere the firmware may name a maker of virtual machines; that it names another one proves nothing.
func virtual(f *facts) []string {
	switch {
	case f.cpuInfo.x86 && slices.Contains(f.cpuInfo.flags, "hypervisor"):
		return []string{"true"}
	case f.cpuInfo.x86:
		return []string{"false"}
	case virtualFirmware(f.dmi):
		return []string{"true"}
	default:
		return nil
	}
}

// virtualFirmware returns whether the strings of the firmware are those of a virtual machine, after systemd's list
// (src/basic/virt.c). Products of Amazon EC2 without virtualization are called *.metal.
func virtualFirmware(d dmi) bool {
	switch d.vendor {
	case "QEMU", "VMware, Inc.", "innotek GmbH", "Xen", "Parallels Software International Inc.", "BHYVE":
		return true
	case "Amazon EC2":
		return d.product != "" && !strings.Contains(d.product, ".metal")
	default:
		return d.vendor == "Microsoft Corporation" && d.product == "Virtual Machine" ||
			strings.HasPrefix(d.product, "KVM") || d.product == "Google Compute Engine"
	}
}
