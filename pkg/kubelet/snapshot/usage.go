package snapshot

import (
	"slices"
	"time"
)

// Unknown is the amount of what a source did not report.
const Unknown = -1

// maxPlausible (1 EiB) is far above the resources of a node. Greater amounts are errors of their source, and count as
// unknown.
const maxPlausible = 1 << 60

// Usage is the usage of a pod by one collection of stats. Snapshots share it, and it must not be modified. Amounts may
// be Unknown. There is one for each pod, so it is kept small: only memory has a date, since its growth is measured.
type Usage struct {
	// Memory is the working set, AnonymousMemory the part of it that is not backed by a file.
	Memory, AnonymousMemory Bytes
	// MemoryDate is the date of both by the wall clock of the source, in nanoseconds since 1970; zero if the source
	// reports none.
	MemoryDate int64
	PIDs       PIDs
	// LocalStorage is the usage to which the limit of the whole pod on local storage applies.
	LocalStorage Bytes
	// Containers and Volumes are in the order of the stats. A name may occur more than once.
	Containers []ContainerUsage
	Volumes    []VolumeUsage
}

// ContainerUsage is the usage of a container.
type ContainerUsage struct {
	Name string
	// Memory is the working set.
	Memory              Bytes
	WritableLayer, Logs FsUsage
}

// VolumeUsage is the usage of a volume.
type VolumeUsage struct {
	Name string
	FsUsage
}

// FsUsage is the usage of a file system.
type FsUsage struct {
	Bytes  Bytes
	Inodes Inodes
}

// plausible reports whether an amount is known.
func plausible[T Amount](n T) bool { return n >= 0 && n <= maxPlausible }

// Memory returns the pod's working set, from its cgroup or else from the stats.
func (p *Pod) Memory() Value[Bytes] {
	if p.Cgroup != nil && p.Cgroup.WorkingSet.Known {
		return p.Cgroup.WorkingSet
	}
	if p.Usage == nil || !plausible(p.Usage.Memory) {
		return Value[Bytes]{}
	}
	return p.Usage.memory(p.Usage.Memory)
}

// MemoryAmount returns the amount of Memory without its date, whose conversion takes longer than the rest.
func (p *Pod) MemoryAmount() (amount Bytes, known bool) {
	if p.Cgroup != nil && p.Cgroup.WorkingSet.Known {
		return p.Cgroup.WorkingSet.Amount, true
	}
	if p.Usage == nil || !plausible(p.Usage.Memory) {
		return 0, false
	}
	return p.Usage.Memory, true
}

// memory returns an amount with the date of the memory stats.
func (u *Usage) memory(amount Bytes) Value[Bytes] {
	v := Value[Bytes]{Amount: amount, Known: true}
	if u.MemoryDate != 0 {
		v.At = time.Unix(0, u.MemoryDate).UTC()
	}
	return v
}

// PIDs returns the number of the pod's processes. The count of the cgroup takes precedence over the stats, which may
// have been collected before the pod started those processes.
func (p *Pod) PIDs() Value[PIDs] {
	if p.Cgroup != nil && p.Cgroup.Processes.Known {
		return p.Cgroup.Processes
	}
	if p.Usage == nil || !plausible(p.Usage.PIDs) {
		return Value[PIDs]{}
	}
	return Value[PIDs]{Amount: p.Usage.PIDs, Known: true}
}

// Disk returns the disk usage of the pod in the measured places, in bytes. It is unknown only if all of them are.
func (p *Pod) Disk(m Measure) (amount Bytes, known bool) {
	s := sum[Bytes]{}
	p.eachFs(m, func(fs *FsUsage) { s.add(fs.Bytes) })
	if m.Images {
		s.add(p.Images)
	}
	return s.amount, s.known
}

// Inodes returns the inodes that the pod uses in the measured places. It is unknown only if all of them are. No source
// reports the inodes of an image.
func (p *Pod) Inodes(m Measure) (amount Inodes, known bool) {
	s := sum[Inodes]{}
	p.eachFs(m, func(fs *FsUsage) { s.add(fs.Inodes) })
	return s.amount, s.known
}

// Release returns an upper bound of what the end of the pod releases. Unknown amounts are zero.
func (p *Pod) Release(l Layout) Release {
	r := Release{
		Memory: p.Memory().Amount, CertainMemory: p.CertainRelease().Amount, AnonymousMemory: p.AnonymousMemory().Amount,
		PIDs: p.PIDs().Amount,
	}
	for d := range NumDevices {
		if m := l.MeasureOf(d); m.Any() && (d == NodeDevice || l.DedicatedImageFs) {
			r.Devices[d].Bytes, _ = p.Disk(m)
			r.Devices[d].Inodes, _ = p.Inodes(m)
		}
	}
	return r
}

// UpdateRelease returns what the end of a terminating pod releases: before, updated by its current usage. Amounts that
// are unknown now stay. On a device an amount also stays if it is greater: stats leave out containers that have exited,
// and what they wrote is on the disk until the pod is cleaned up.
func (p *Pod) UpdateRelease(before Release, l Layout) Release {
	now, r := p.Release(l), before
	switch {
	case !p.Memory().Known:
	case p.AnonymousMemory().Known:
		r.Memory, r.CertainMemory, r.AnonymousMemory = now.Memory, now.CertainMemory, now.AnonymousMemory
	default:
		r.Memory = now.Memory
		r.CertainMemory, r.AnonymousMemory = min(r.CertainMemory, now.Memory), min(r.AnonymousMemory, now.Memory)
	}
	if p.PIDs().Known {
		r.PIDs = now.PIDs
	}
	for d := range r.Devices {
		r.Devices[d].Bytes = max(before.Devices[d].Bytes, now.Devices[d].Bytes)
		r.Devices[d].Inodes = max(before.Devices[d].Inodes, now.Devices[d].Inodes)
	}
	return r
}

// sum adds amounts without overflow. It is known if one of them is.
type sum[T Amount] struct {
	amount T
	known  bool
}

func (s *sum[T]) add(n T) {
	if plausible(n) {
		s.amount, s.known = min(s.amount+n, maxPlausible), true
	}
}

func (p *Pod) eachFs(m Measure, add func(*FsUsage)) {
	if p.Usage == nil {
		return
	}
	for i := range p.Usage.Containers {
		c := &p.Usage.Containers[i]
		if m.WritableLayers {
			add(&c.WritableLayer)
		}
		if m.Logs {
			add(&c.Logs)
		}
	}
	if m.Volumes && p.Facts != nil {
		p.eachVolume(p.Volumes, add)
	}
}

// eachVolume visits those of the named volumes that are in the stats. A volume that occurs twice counts once.
func (p *Pod) eachVolume(names []string, add func(*FsUsage)) {
	if len(names) == 0 {
		return
	}
	for i := range p.Usage.Volumes {
		v := &p.Usage.Volumes[i]
		again := func(earlier VolumeUsage) bool { return earlier.Name == v.Name }
		if slices.Contains(names, v.Name) && !slices.ContainsFunc(p.Usage.Volumes[:i], again) {
			add(&v.FsUsage)
		}
	}
}
