package sources

import (
	"bytes"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/systemmemory"
)

// NodeMemory reads what is known of the memory of the node.
type NodeMemory struct{ meminfo, vmstat, scale, stalls *File }

// NewNodeMemory returns a reader of files below the mount point of proc.
func NewNodeMemory(proc string) *NodeMemory {
	return &NodeMemory{
		meminfo: NewFile(filepath.Join(proc, "meminfo")), vmstat: NewFile(filepath.Join(proc, "vmstat")),
		scale:  NewFile(filepath.Join(proc, "sys/vm/watermark_scale_factor")),
		stalls: NewFile(filepath.Join(proc, "pressure/memory")),
	}
}

// Node reads all files. What cannot be read is absent, and the error names each file that cannot.
func (m *NodeMemory) Node() (n systemmemory.Node, err error) {
	err = join(
		m.meminfo.Read(func(data []byte) error {
			n.Free, n.Total = known(kilobytes(data, "MemFree")), known(kilobytes(data, "MemTotal"))
			return required(n.Free != nil && n.Total != nil, "MemFree and MemTotal")
		}),
		m.vmstat.Read(func(data []byte) error {
			n.Stolen = known(field(data, "pgsteal_kswapd"))
			return required(n.Stolen != nil, "pgsteal_kswapd")
		}),
		m.scale.Read(func(data []byte) error {
			n.ScaleFactor = known(number(bytes.TrimSuffix(data, []byte{'\n'})))
			return required(n.ScaleFactor != nil, "a number")
		}),
		m.stalls.Read(func(data []byte) error {
			n.Stall = known(someAvg10(data))
			return required(n.Stall != nil, "some avg10")
		}),
	)
	return n, err
}

// Close implements plugins.Files.
func (m *NodeMemory) Close() {
	for _, f := range []*File{m.meminfo, m.vmstat, m.scale, m.stalls} {
		f.Close()
	}
}

// known returns a pointer to a value, nil if it is unknown.
func known[T any](value T, ok bool) *T {
	if !ok {
		return nil
	}
	return &value
}

// PodMemory reads the memory usage of pods, and for how long their tasks were stalled on memory.
type PodMemory struct {
	usage *PodFiles
	// stalls is nil with cgroup v1, which has no such files.
	stalls *PodFiles
}

// NewPodMemory returns a reader of memory.current and memory.pressure with cgroup v2, memory.usage_in_bytes with v1.
func NewPodMemory(cgroups Cgroups) *PodMemory {
	if !cgroups.Unified {
		return &PodMemory{usage: NewPodFiles(cgroups, "memory", "memory.usage_in_bytes")}
	}
	return &PodMemory{
		usage: NewPodFiles(cgroups, "memory", "memory.current"), stalls: NewPodFiles(cgroups, "memory", "memory.pressure"),
	}
}

// Usage returns the memory usage of pods in bytes, page cache included. Pods for which it is unknown are left out; the
// error is that of PodFiles.Each.
func (m *PodMemory) Usage(pods []*v1.Pod) (map[types.UID]int64, error) {
	list := make(map[types.UID]int64, len(pods))
	err := m.usage.Each(pods, func(pod types.UID, data []byte) error {
		n, ok := number(bytes.TrimSuffix(data, []byte{'\n'}))
		if ok {
			list[pod] = n
		}
		return required(ok, "a number")
	})
	return list, err
}

// Stalls returns some avg10 of pods in percent, nil with cgroup v1. Pods for which it is unknown are left out; the
// error is that of PodFiles.Each.
func (m *PodMemory) Stalls(pods []*v1.Pod) (map[types.UID]float64, error) {
	if m.stalls == nil {
		return nil, nil
	}
	list := make(map[types.UID]float64, len(pods))
	err := m.stalls.Each(pods, func(pod types.UID, data []byte) error {
		stall, ok := someAvg10(data)
		if ok {
			list[pod] = stall
		}
		return required(ok, "some avg10")
	})
	return list, err
}

// Close implements plugins.Files.
func (m *PodMemory) Close() {
	m.usage.Close()
	if m.stalls != nil {
		m.stalls.Close()
	}
}
