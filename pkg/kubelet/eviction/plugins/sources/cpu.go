package sources

import (
	"bytes"
	"math"
	"path/filepath"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/cpupressure"
)

// CPU reads what is known of the CPUs of the node, and what pods have used of them.
type CPU struct {
	stalls, stat, throttling *File
	used                     *PodFiles
	unified                  bool
	cpus                     int
}

// NewCPU returns a reader of files below the mount point of proc and in cgroups. podsCgroup is the path of the cgroup
// of all pods, cpus the number of CPUs.
func NewCPU(proc string, cgroups Cgroups, podsCgroup string, cpus int) *CPU {
	c := &CPU{
		stalls: NewFile(filepath.Join(proc, "pressure/cpu")), stat: NewFile(filepath.Join(proc, "stat")),
		throttling: NewFile(filepath.Join(cgroups.Mounts["cpu"], podsCgroup, "cpu.stat")),
		used:       NewPodFiles(cgroups, "cpuacct", "cpuacct.usage"), unified: cgroups.Unified, cpus: cpus,
	}
	if cgroups.Unified {
		c.used = NewPodFiles(cgroups, "cpu", "cpu.stat")
	}
	return c
}

// Node returns what is known of the node. A cgroup of all pods without a quota has no periods, so that it is never
// throttled. What cannot be read is absent, and the error names each file that cannot.
func (c *CPU) Node() (n cpupressure.Node, err error) {
	n.CPUs = c.cpus
	err = join(
		c.stalls.Read(func(data []byte) error {
			n.Stall = known(someAvg10(data))
			return required(n.Stall != nil, "some avg10")
		}),
		c.stat.Read(func(data []byte) error {
			idle, total, ok := cpuTime(data)
			if ok {
				n.Idle, n.Total = &idle, &total
			}
			return required(ok, "the line of all CPUs")
		}),
		c.throttling.Read(func(data []byte) error {
			n.Periods, n.Throttled = known(field(data, "nr_periods")), known(field(data, "nr_throttled"))
			return required(n.Periods != nil && n.Throttled != nil, "nr_periods and nr_throttled")
		}),
	)
	return n, err
}

// cpuTime returns the idle time of all CPUs, in which they wait for disks too, and all their time, from the first line
// of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; guest times are part of user and nice
// (proc(5)).
func cpuTime(data []byte) (idle, total int64, ok bool) {
	line, _, _ := bytes.Cut(data, []byte{'\n'})
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, 0, false
	}
	for i, text := range fields[1:9] {
		n, ok := number(text)
		if !ok || n > most>>4 {
			return 0, 0, false
		}
		total += n
		if i == 3 || i == 4 {
			idle += n
		}
	}
	return idle, total, true
}

// Used returns the CPU time of pods. Pods for which it is unknown are left out; the error is that of PodFiles.Each.
func (c *CPU) Used(pods []*v1.Pod) (map[types.UID]time.Duration, error) {
	list := make(map[types.UID]time.Duration, len(pods))
	err := c.used.Each(pods, func(pod types.UID, data []byte) error {
		text, unit, ok := bytes.TrimSuffix(data, []byte{'\n'}), time.Nanosecond, true
		if c.unified {
			text, ok = valueOf(data, "usage_usec")
			unit = time.Microsecond
		}
		// A pod with many CPUs uses more nanoseconds in a month than number accepts.
		n, err := strconv.ParseUint(string(text), 10, 64)
		ok = ok && err == nil && n <= math.MaxInt64/uint64(unit)
		if ok {
			list[pod] = time.Duration(n) * unit
		}
		return required(ok, "the CPU time")
	})
	return list, err
}

// Close implements plugins.Files.
func (c *CPU) Close() {
	c.stalls.Close()
	c.stat.Close()
	c.throttling.Close()
	c.used.Close()
}
