package policy

import "github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"

// group is a set of signals that the same evictions serve: memory.available and allocatableMemory.available, and
// signals with the same unit and device.
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

// groupOf returns the group of a signal. Signals of file systems have none while the layout is unknown.
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

// device returns the device of a group of file system signals.
func (g group) device() snapshot.Device {
	if g == imageBytesGroup || g == imageInodesGroup {
		return snapshot.ImageDevice
	}
	return snapshot.NodeDevice
}

// disk reports whether the group is about a file system.
func (g group) disk() bool { return g >= nodeBytesGroup }

// usage returns how much the pod uses, in the unit of the group. Only here and in release, expected and request the
// types of package snapshot become plain numbers, which are compared only with numbers of the same group.
func (g group) usage(p *snapshot.Pod, l snapshot.Layout) (amount int64, known bool) {
	switch g {
	case memoryGroup:
		n, known := p.MemoryAmount()
		return int64(n), known
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

// groupRelease is what the end of a pod releases, in the unit of a group.
type groupRelease struct {
	// amount is an upper bound. certain is the part that comes free in any case, processes the part of both that is free
	// as soon as no process of the pod runs.
	amount, certain, processes int64
	known                      bool
}

// withoutProcesses returns what is still to be released when no process of the pod runs: files in memory, page cache,
// disk space.
func (r groupRelease) withoutProcesses() groupRelease {
	r.amount, r.certain = max(0, r.amount-r.processes), max(0, r.certain-r.processes)
	return r
}

// release returns what the end of the pod releases by its current usage. Disk space, inodes and PIDs are released in
// full.
func (g group) release(p *snapshot.Pod, l snapshot.Layout) groupRelease {
	amount, known := g.usage(p, l)
	r := groupRelease{amount: amount, certain: amount, known: known}
	switch g {
	case memoryGroup:
		r.certain, r.processes = int64(p.CertainRelease().Amount), int64(p.AnonymousMemory().Amount)
	case pidGroup:
		r.processes = amount
	default:
	}
	return r
}

// expected returns the group's part of a release that was recorded when the pod was asked to stop.
func (g group) expected(r snapshot.Release) groupRelease {
	switch g {
	case memoryGroup:
		return groupRelease{amount: int64(r.Memory), certain: int64(r.CertainMemory), processes: int64(r.AnonymousMemory),
			known: true}
	case pidGroup:
		return groupRelease{amount: int64(r.PIDs), certain: int64(r.PIDs), processes: int64(r.PIDs), known: true}
	case nodeInodesGroup, imageInodesGroup:
		n := int64(r.Devices[g.device()].Inodes)
		return groupRelease{amount: n, certain: n, known: true}
	default:
		n := int64(r.Devices[g.device()].Bytes)
		return groupRelease{amount: n, certain: n, known: true}
	}
}

// request returns what the pod requests, in the unit of the group. There are no requests for PIDs, inodes and images.
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
