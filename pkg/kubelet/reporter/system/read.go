package system

import (
	"bufio"
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Files and directories below the root of the machine.
const (
	cpuInfoFile = "proc/cpuinfo"
	networkDir  = "sys/class/net"
	dmiVendor   = "sys/class/dmi/id/sys_vendor"
	dmiProduct  = "sys/class/dmi/id/product_name"
)

// maxInterfaces is the greatest number of network interfaces that are reported.
const maxInterfaces = 256

// readFacts reads the machine. What cannot be read has its value for unknown.
func readFacts(c *Config) facts {
	f := facts{
		interfaces: readInterfaces(c.Root), cpuInfo: parseCPUInfo(read(c.Root, cpuInfoFile)),
		dmi: dmi{vendor: word(c.Root, dmiVendor), product: word(c.Root, dmiProduct)},
	}
	if machine, err := c.MachineInfo(); err == nil && machine != nil {
		f.numaNodes, f.cpus, f.memory = len(machine.Topology), machine.NumCores, machine.MemoryCapacity
	}
	return f
}

func read(root fs.FS, name string) []byte {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return nil
	}
	return data
}

func word(root fs.FS, name string) string { return strings.TrimSpace(string(read(root, name))) }

// number returns the number in a file, and the value for unknown if there is none or it is negative. The kernel writes
// -1 for what it does not know; before Linux 5.1 it wrote an unknown speed as 4294967295.
func number(root fs.FS, name string, unknown int) int {
	n, err := strconv.ParseInt(word(root, name), 10, 32)
	if err != nil || n < 0 {
		return unknown
	}
	return int(n)
}

// readInterfaces reads the network interfaces that have hardware (device) or that bond others (bonding). Those of pods
// and bridges have neither. No more than maxInterfaces are read.
func readInterfaces(root fs.FS) (list []networkInterface) {
	entries, err := fs.ReadDir(root, networkDir)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		dir := path.Join(networkDir, entry.Name())
		if !exists(root, path.Join(dir, "device")) && !exists(root, path.Join(dir, "bonding")) {
			continue
		}
		if len(list) == maxInterfaces {
			break
		}
		list = append(list, networkInterface{
			name: entry.Name(), up: word(root, path.Join(dir, "operstate")) == "up",
			speed:    int64(number(root, path.Join(dir, "speed"), 0)),
			numaNode: number(root, path.Join(dir, "device/numa_node"), -1),
		})
	}
	return list
}

func exists(root fs.FS, name string) bool {
	_, err := fs.Stat(root, name)
	return err == nil
}

// parseCPUInfo returns what all CPUs have in common: the flags of x86, the Features of arm64.
func parseCPUInfo(data []byte) (info cpuInfo) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	var before string
	first := true
	for lines.Scan() {
		name, value, found := strings.Cut(lines.Text(), ":")
		name = strings.TrimSpace(name)
		if !found || name != "flags" && name != "Features" {
			continue
		}
		info.x86 = info.x86 || name == "flags"
		if !first && value == before {
			continue
		}
		before = value
		flags := strings.Fields(value)
		slices.Sort(flags)
		if flags = slices.Compact(flags); first {
			info.flags, first = flags, false
			continue
		}
		info.flags = slices.DeleteFunc(info.flags, func(flag string) bool {
			_, has := slices.BinarySearch(flags, flag)
			return !has
		})
	}
	return info
}
