package snapshot

import (
	"slices"
	"time"
)

// Unknown is the amount of what a source did not report, which is neither zero nor the worst possible value.
const Unknown = -1

// maxPlausible is far above what a node can have (1 EiB). Greater amounts are mistakes of their source, and count as
// unknown.
const maxPlausible = 1 << 60

// Usage is what a pod uses by the stats of one collection. Rounds that are made from the same collection share it: it
// is not modified. Amounts may be Unknown. There is one for each pod, so it is small: only memory is dated, since its
// growth is measured.
type Usage struct {
	// Memory is the working set, AnonymousMemory the part of it that is in no file.
	Memory, AnonymousMemory Bytes
	// MemoryDate is when these were true by the source's wall clock, in nanoseconds since 1970; zero if the source does
	// not say.
	MemoryDate int64
	PIDs       PIDs
	// LocalStorage is what counts against the limit of the whole pod on local storage.
	LocalStorage Bytes
	// Containers and Volumes are in the order in which they are reported. A name may occur more than once.
	Containers []ContainerUsage
	Volumes    []VolumeUsage
}

// ContainerUsage is what a container uses.
type ContainerUsage struct {
	Name string
	// Memory is the working set.
	Memory              Bytes
	WritableLayer, Logs FsUsage
}

// VolumeUsage is what is in a volume.
type VolumeUsage struct {
	Name string
	FsUsage
}

// FsUsage is what is used of a file system.
type FsUsage struct {
	Bytes  Bytes
	Inodes Inodes
}

// plausible reports whether an amount is known.
func plausible[T Amount](n T) bool { return n >= 0 && n <= maxPlausible }

// Memory is the pod's working set.
func (p *Pod) Memory() Value[Bytes] {
	if p.Cgroup != nil && p.Cgroup.WorkingSet.Known {
		return p.Cgroup.WorkingSet
	}
	if p.Usage == nil || !plausible(p.Usage.Memory) {
		return Value[Bytes]{}
	}
	return p.Usage.memory(p.Usage.Memory)
}

// memory is an amount that has the date of the pod's memory.
func (u *Usage) memory(amount Bytes) Value[Bytes] {
	v := Value[Bytes]{Amount: amount, Known: true}
	if u.MemoryDate != 0 {
		v.At = time.Unix(0, u.MemoryDate).UTC()
	}
	return v
}

// PIDs is the number of the pod's processes. The cgroup's own count goes before that of the stats, which may be from
// before the pod began to start them.
func (p *Pod) PIDs() Value[PIDs] {
	if p.Cgroup != nil && p.Cgroup.Processes.Known {
		return p.Cgroup.Processes
	}
	if p.Usage == nil || !plausible(p.Usage.PIDs) {
		return Value[PIDs]{}
	}
	return Value[PIDs]{Amount: p.Usage.PIDs, Known: true}
}

// Disk is how many bytes the pod uses in the measured places. It is unknown only if all of them are.
func (p *Pod) Disk(m Measure) (amount Bytes, known bool) {
	s := sum[Bytes]{}
	p.eachFs(m, func(fs *FsUsage) { s.add(fs.Bytes) })
	if m.Images {
		s.add(p.Images)
	}
	return s.amount, s.known
}

// Inodes is how many inodes the pod uses in the measured places. It is unknown only if all of them are; no source says
// how many an image has.
func (p *Pod) Inodes(m Measure) (amount Inodes, known bool) {
	s := sum[Inodes]{}
	p.eachFs(m, func(fs *FsUsage) { s.add(fs.Inodes) })
	return s.amount, s.known
}

// Release is an upper bound of what the pod's end gives back. What is unknown counts as nothing.
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

// sum adds up amounts without overflow. It is known as soon as one of them is.
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

// eachVolume visits those of the named volumes that are reported. One that is reported twice counts once.
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
