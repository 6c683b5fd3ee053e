package sources

import (
	"bytes"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NUMAMemory reads the memory of pods by NUMA node.
type NUMAMemory struct {
	*PodFiles
	keys [][]byte
	unit int64
}

// NewNUMAMemory returns a reader of memory.numa_stat. With cgroup v2 the memory is that of anon and file, in bytes;
// with v1 it is that of hierarchical_total, which has the same pages, in pages (kernel documentation,
// admin-guide/cgroup-v2, and cgroup-v1/memory, 5.6).
func NewNUMAMemory(cgroups Cgroups) *NUMAMemory {
	n := &NUMAMemory{PodFiles: NewPodFiles(cgroups, "memory", "memory.numa_stat")}
	if cgroups.Unified {
		n.keys, n.unit = [][]byte{[]byte("anon "), []byte("file ")}, 1
	} else {
		n.keys, n.unit = [][]byte{[]byte("hierarchical_total=")}, int64(os.Getpagesize())
	}
	return n
}

// ByNode returns the memory of pods by NUMA node, in bytes. Pods for which it is unknown are left out.
func (n *NUMAMemory) ByNode(pods []*v1.Pod) map[types.UID]map[int]int64 {
	list := make(map[types.UID]map[int]int64, len(pods))
	n.Each(pods, func(pod types.UID, data []byte) {
		if memory, ok := parseNUMAStat(data, n.keys, n.unit); ok {
			list[pod] = memory
		}
	})
	return list
}

// parseNUMAStat adds the lines with these prefixes. It fails if one of them is missing, repeated or broken.
func parseNUMAStat(data []byte, keys [][]byte, unit int64) (map[int]int64, bool) {
	sums, seen := map[int]int64{}, make([]bool, len(keys))
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		for i, key := range keys {
			value, found := bytes.CutPrefix(line, key)
			if !found {
				continue
			}
			if seen[i] || !addNUMANodes(sums, value, unit) {
				return nil, false
			}
			seen[i] = true
		}
	}
	for _, found := range seen {
		if !found {
			return nil, false
		}
	}
	return sums, true
}

// addNUMANodes adds the amounts of a line "N0=1 N1=2", before which v1 has the sum.
func addNUMANodes(sums map[int]int64, line []byte, unit int64) bool {
	any := false
	for i, field := range bytes.Fields(line) {
		name, amount, hasAmount := bytes.Cut(field, []byte{'='})
		if !hasAmount && i == 0 {
			if _, ok := number(field); !ok {
				return false
			}
			continue
		}
		name, isNode := bytes.CutPrefix(name, []byte{'N'})
		node, ok := number(name)
		n, ok2 := number(amount)
		if !isNode || !hasAmount || !ok || !ok2 || node >= maxNUMANodes || n > most>>20 && unit > 1 {
			return false
		}
		sums[int(node)] += n * unit
		any = true
	}
	return any
}
