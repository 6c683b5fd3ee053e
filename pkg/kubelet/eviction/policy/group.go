package policy

import "github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"

// group is what is served by the same evictions: memory.available and allocatableMemory.available are one need, and so
// are signals of one unit on one device.
type group uint8

const (
	memoryGroup group = iota
	pidGroup
	nodeBytesGroup
	nodeInodesGroup
	imageBytesGroup
	imageInodesGroup
	numGroups
)

// groupOf finds a signal's group. File system signals have none while the layout is unknown.
func groupOf(sig snapshot.Signal, l snapshot.Layout) (group, bool) {
	switch sig {
	case snapshot.MemoryAvailable, snapshot.AllocatableMemoryAvailable:
		return memoryGroup, true
	case snapshot.PIDAvailable:
		return pidGroup, true
	default: // a file system
	}
	if !l.Known {
		return 0, false
	}
	image := l.DeviceOf(sig) == snapshot.ImageDevice
	switch sig.Resource() {
	case snapshot.ResourceInodes:
		if image {
			return imageInodesGroup, true
		}
		return nodeInodesGroup, true
	default:
		if image {
			return imageBytesGroup, true
		}
		return nodeBytesGroup, true
	}
}

// device is that of a file system group.
func (g group) device() snapshot.Device {
	if g == imageBytesGroup || g == imageInodesGroup {
		return snapshot.ImageDevice
	}
	return snapshot.NodeDevice
}

// disk tells whether it is about a file system.
func (g group) disk() bool { return g >= nodeBytesGroup }

// usage is what the pod uses of it, in the group's unit. This is the only place where the units of snapshot become
// plain numbers: from here on a number is compared only with numbers of the same group.
func (g group) usage(p *snapshot.Pod, l snapshot.Layout) (amount int64, known bool) {
	switch g {
	case memoryGroup:
		v := p.Memory()
		return int64(v.Amount), v.Known
	case pidGroup:
		v := p.PIDs()
		return int64(v.Amount), v.Known
	case nodeInodesGroup, imageInodesGroup:
		n, known := p.Inodes(l.MeasureOf(g.device()))
		return int64(n), known
	default:
		n, known := p.Disk(l.MeasureOf(g.device()))
		return int64(n), known
	}
}

// returns is what the end of a pod gives back, in the unit of a group.
type returns struct {
	// amount is an upper bound, certain what comes back in any case, processes what of both is back as soon as no process
	// of the pod runs any more.
	amount, certain, processes int64
	known                      bool
}

// withoutProcesses is what is still to come when no process of the pod runs any more: files in memory, page cache,
// disks.
func (b returns) withoutProcesses() returns {
	b.amount, b.certain = max(0, b.amount-b.processes), max(0, b.certain-b.processes)
	return b
}

// returns is what the end of the pod gives back by its present figures. Disks, inodes and PIDs are given back whole.
func (g group) returns(p *snapshot.Pod, l snapshot.Layout) returns {
	amount, known := g.usage(p, l)
	b := returns{amount: amount, certain: amount, known: known}
	switch g {
	case memoryGroup:
		b.certain, b.processes = int64(p.CertainRelease().Amount), int64(p.AnonymousMemory().Amount)
	case pidGroup:
		b.processes = amount
	default:
	}
	return b
}

// expected is the group's part of what the end of a pod gives back, as it was known when the pod was asked to stop.
func (g group) expected(r snapshot.Release) returns {
	switch g {
	case memoryGroup:
		return returns{amount: int64(r.Memory), certain: int64(r.CertainMemory), processes: int64(r.AnonymousMemory),
			known: true}
	case pidGroup:
		return returns{amount: int64(r.PIDs), certain: int64(r.PIDs), processes: int64(r.PIDs), known: true}
	case nodeInodesGroup, imageInodesGroup:
		n := int64(r.Devices[g.device()].Inodes)
		return returns{amount: n, certain: n, known: true}
	default:
		n := int64(r.Devices[g.device()].Bytes)
		return returns{amount: n, certain: n, known: true}
	}
}

// request is what the pod is entitled to. There are no requests for PIDs and inodes, nor for images.
func (g group) request(p *snapshot.Pod, l snapshot.Layout) int64 {
	switch g {
	case memoryGroup:
		return int64(p.MemoryRequest)
	case nodeBytesGroup, imageBytesGroup:
		if l.MeasureOf(g.device()).Images {
			return 0
		}
		return int64(p.StorageRequest)
	default:
		return 0
	}
}
