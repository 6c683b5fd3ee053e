package sources

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/numamemory"
)

// maxNUMANodes is the greatest number of NUMA nodes that Linux supports (CONFIG_NODES_SHIFT is at most 10).
const maxNUMANodes = 1024

// Zoneinfo reads the memory of NUMA nodes from /proc/zoneinfo.
type Zoneinfo struct{ *File }

// NewZoneinfo returns a reader of the file at a path.
func NewZoneinfo(path string) *Zoneinfo { return &Zoneinfo{NewFile(path)} }

// Zones returns the NUMA nodes in the order of their numbers, without those that are not known in full, which the error
// names. It returns none if the file cannot be read.
func (z *Zoneinfo) Zones() (list []numamemory.Zone, err error) {
	err = z.Read(func(data []byte) error {
		list, err = parseZoneinfo(data, int64(os.Getpagesize()))
		return err
	})
	return list, err
}

// zone is one block of /proc/zoneinfo. Numbers are in pages, -1 before their lines.
type zone struct {
	node                    int
	free, min, low, managed int64
	// inactive is the sum of nr_inactive_file: since Linux 4.8 the first zone of a NUMA node has that of the whole NUMA
	// node, before that each zone has its own.
	inactive      int64
	knowsInactive bool
	broken        bool
}

// parseZoneinfo parses /proc/zoneinfo. A NUMA node with a line that is broken, missing or repeated is left out, and
// zones without memory are; the error names the former. There is no NUMA node if the beginning of a zone is broken: it
// is not known then whose the lines after it are.
func parseZoneinfo(data []byte, pageSize int64) ([]numamemory.Zone, error) {
	var zones []zone
	inPagesets := false
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		if number, isHeader, err := zoneHeader(line); err != nil {
			return nil, err
		} else if isHeader {
			zones = append(zones, zone{node: number, free: -1, min: -1, low: -1, managed: -1})
			inPagesets = false
			continue
		}
		fields := bytes.Fields(line)
		if len(zones) == 0 || len(fields) == 0 || inPagesets {
			continue
		}
		if string(fields[0]) == "pagesets" {
			inPagesets = true
			continue
		}
		zones[len(zones)-1].line(fields)
	}
	return nodesOf(zones, pageSize)
}

// zoneHeader parses the line "Node 0, zone   Normal".
func zoneHeader(line []byte) (node int, isHeader bool, err error) {
	if !bytes.HasPrefix(line, []byte("Node")) {
		return 0, false, nil
	}
	fields := bytes.Fields(line)
	if len(fields) != 4 || string(fields[0]) != "Node" || string(fields[2]) != "zone" {
		return 0, false, fmt.Errorf("%w: %.40q", errUnexpected, line)
	}
	n, isNumber := bytes.CutSuffix(fields[1], []byte{','})
	number, ok := number(n)
	if !isNumber || !ok || number >= maxNUMANodes {
		return 0, false, fmt.Errorf("%w: %.40q", errUnexpected, line)
	}
	return int(number), true, nil
}

// line takes in a line of the zone.
func (z *zone) line(fields [][]byte) {
	if string(fields[0]) == "pages" && len(fields) > 1 && string(fields[1]) == "free" {
		fields = fields[1:]
	}
	var into *int64
	switch string(fields[0]) {
	case "free":
		into = &z.free
	case "min":
		into = &z.min
	case "low":
		into = &z.low
	case "managed":
		into = &z.managed
	case "nr_inactive_file":
		z.broken = z.broken || z.knowsInactive
		z.knowsInactive, z.inactive = true, -1
		into = &z.inactive
	default:
		return
	}
	if len(fields) != 2 || *into != -1 {
		z.broken = true
		return
	}
	n, ok := number(fields[1])
	if *into = n; !ok || n > most>>16 {
		z.broken = true
	}
}

// nodesOf adds the zones of each NUMA node. The error names those that are not known in full.
func nodesOf(zones []zone, pageSize int64) (list []numamemory.Zone, err error) {
	sums, broken, inactive := map[int]*numamemory.Zone{}, map[int]bool{}, map[int]bool{}
	for i := range zones {
		z := &zones[i]
		if sums[z.node] == nil {
			sums[z.node] = &numamemory.Zone{Node: z.node}
		}
		sum := sums[z.node]
		inactive[z.node] = inactive[z.node] || z.knowsInactive
		if z.broken || z.free < 0 || z.min < 0 || z.low < z.min || z.managed < 0 {
			broken[z.node] = true
			continue
		}
		sum.InactiveFile += z.inactive * pageSize
		if z.managed > 0 {
			sum.Total, sum.Free = sum.Total+z.managed*pageSize, sum.Free+z.free*pageSize
			sum.Min, sum.Low = sum.Min+z.min*pageSize, sum.Low+z.low*pageSize
		}
	}
	var unknown []int
	for node, sum := range sums {
		switch {
		case broken[node] || (!inactive[node] && sum.Total > 0):
			unknown = append(unknown, node)
		case sum.Total > 0:
			list = append(list, *sum)
		}
	}
	slices.SortFunc(list, func(a, b numamemory.Zone) int { return cmp.Compare(a.Node, b.Node) })
	if len(unknown) > 0 {
		slices.Sort(unknown)
		err = fmt.Errorf("%w: a line of NUMA nodes %v is missing or broken", errUnexpected, unknown)
	}
	return list, err
}
