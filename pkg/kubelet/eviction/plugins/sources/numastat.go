package sources

import (
	"bytes"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NUMAMemory reads the memory of pods by NUMA node.
type NUMAMemory struct {
	*PodFiles
	// keys are what the lines begin with, after which sum has v1's sum of all NUMA nodes.
	keys [][]byte
	sum  bool
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
		n.keys, n.sum, n.unit = [][]byte{[]byte("hierarchical_total=")}, true, int64(os.Getpagesize())
	}
	return n
}

// ByNode returns the memory of pods by NUMA node, in bytes. Pods for which it is unknown are left out; the error is
// that of PodFiles.Each.
func (n *NUMAMemory) ByNode(pods []*v1.Pod) (map[types.UID]map[int]int64, error) {
	list := make(map[types.UID]map[int]int64, len(pods))
	err := n.Each(pods, func(pod types.UID, data []byte) error {
		memory, ok := n.parse(data)
		if ok {
			list[pod] = memory
		}
		return required(ok, fmt.Sprintf("%q", bytes.Join(n.keys, []byte(", "))))
	})
	return list, err
}

// parse adds the lines with the keys. It fails if one of them is missing, repeated or broken.
func (n *NUMAMemory) parse(data []byte) (map[int]int64, bool) {
	sums, seen := map[int]int64{}, make([]bool, len(n.keys))
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		for i, key := range n.keys {
			value, found := bytes.CutPrefix(line, key)
			if !found {
				continue
			}
			if n.sum {
				sum, nodes, _ := bytes.Cut(value, []byte{' '})
				if _, ok := number(sum); !ok {
					return nil, false
				}
				value = nodes
			}
			if seen[i] || !addNUMANodes(sums, value, n.unit) {
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

// addNUMANodes adds the amounts of a line "N0=1 N1=2", in which each NUMA node must be once.
func addNUMANodes(sums map[int]int64, line []byte, unit int64) bool {
	amounts := map[int]int64{}
	for field := range bytes.FieldsSeq(line) {
		name, amount, hasAmount := bytes.Cut(field, []byte{'='})
		name, isNode := bytes.CutPrefix(name, []byte{'N'})
		node, ok := number(name)
		n, ok2 := number(amount)
		_, twice := amounts[int(node)]
		if !isNode || !hasAmount || !ok || !ok2 || twice || node >= maxNUMANodes || n > most>>20 && unit > 1 {
			return false
		}
		amounts[int(node)] = n * unit
	}
	for node, amount := range amounts {
		sums[node] += amount
	}
	return len(amounts) > 0
}
