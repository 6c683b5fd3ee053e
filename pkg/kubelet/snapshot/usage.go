package snapshot

import (
	"slices"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// maxPlausible is far above what a node can have (1 EiB); figures above it are mistakes of their source and count as absent.
const maxPlausible = 1 << 60

// Memory is the pod's working set.
func (p *Pod) Memory() Value[Bytes] {
	if p.Cgroup != nil && p.Cgroup.WorkingSet.Known {
		return p.Cgroup.WorkingSet
	}
	if p.Stats == nil || p.Stats.Memory == nil || p.Stats.Memory.WorkingSetBytes == nil {
		return Value[Bytes]{}
	}
	if *p.Stats.Memory.WorkingSetBytes > maxPlausible {
		return Value[Bytes]{}
	}
	return Known(Bytes(*p.Stats.Memory.WorkingSetBytes), p.Stats.Memory.Time.Time)
}

// PIDs is the number of the pod's processes. The cgroup's own count goes before that of the summary, which may be from before the pod began
// to start them.
func (p *Pod) PIDs() Value[PIDs] {
	if p.Cgroup != nil && p.Cgroup.Processes.Known {
		return p.Cgroup.Processes
	}
	if p.Stats == nil || p.Stats.ProcessStats == nil || p.Stats.ProcessStats.ProcessCount == nil {
		return Value[PIDs]{}
	}
	if *p.Stats.ProcessStats.ProcessCount > maxPlausible {
		return Value[PIDs]{}
	}
	return Value[PIDs]{Amount: PIDs(*p.Stats.ProcessStats.ProcessCount), Known: true}
}

// Disk is how many bytes the pod uses in the measured places. It is unknown only when none of them has a figure.
func (p *Pod) Disk(m Measure) Value[Bytes] {
	v := fold(p, m, func(fs *statsapi.FsStats) *uint64 { return fs.UsedBytes }, func(n uint64) Bytes { return Bytes(n) })
	if m.Images && p.Images.Known && p.Images.Amount >= 0 {
		v.Amount, v.At, v.Known = min(v.Amount+min(p.Images.Amount, maxPlausible), maxPlausible), earliest(v.At, p.Images.At), true
	}
	return v
}

// Inodes is how many inodes the pod uses in the measured places. It is unknown only when none of them has a figure; nobody tells
// how many an image has.
func (p *Pod) Inodes(m Measure) Value[Inodes] {
	return fold(p, m, func(fs *statsapi.FsStats) *uint64 { return fs.InodesUsed }, func(n uint64) Inodes { return Inodes(n) })
}

// Release is an upper bound of what the pod's end gives back. What is unknown counts as nothing.
func (p *Pod) Release(l Layout) Release {
	r := Release{
		Memory: p.Memory().Amount, CertainMemory: p.CertainRelease().Amount, AnonymousMemory: p.AnonymousMemory().Amount,
		PIDs: p.PIDs().Amount,
	}
	for d := range NumDevices {
		if m := l.MeasureOf(d); m.Any() && (d == NodeDevice || l.DedicatedImageFs) {
			r.Devices[d] = FsRelease{Bytes: p.Disk(m).Amount, Inodes: p.Inodes(m).Amount}
		}
	}
	return r
}

func fold[T Amount](p *Pod, m Measure, field func(*statsapi.FsStats) *uint64, unit func(uint64) T) Value[T] {
	var sum Value[T]
	if p.Stats == nil {
		return sum
	}
	add := func(fs *statsapi.FsStats) {
		if fs == nil {
			return
		}
		if n := field(fs); n != nil && *n <= maxPlausible {
			sum.Amount = min(sum.Amount+unit(*n), unit(maxPlausible))
			sum.Known = true
			sum.At = earliest(sum.At, WallTime(fs.Time.Time))
		}
	}
	for i := range p.Stats.Containers {
		c := &p.Stats.Containers[i]
		if m.WritableLayers {
			add(c.Rootfs)
		}
		if m.Logs {
			add(c.Logs)
		}
	}
	if m.Volumes {
		eachVolume(p, add)
	}
	return sum
}

func eachVolume(p *Pod, add func(*statsapi.FsStats)) {
	if p.Facts == nil || len(p.Volumes) == 0 {
		return
	}
	for i := range p.Stats.VolumeStats {
		v := &p.Stats.VolumeStats[i]
		if slices.Contains(p.Volumes, v.Name) && !reported(p.Stats.VolumeStats[:i], v.Name) {
			add(&v.FsStats)
		}
	}
}

// reported tells whether a volume was counted already: a summary that lists one twice must not count twice.
func reported(earlier []statsapi.VolumeStats, name string) bool {
	return slices.ContainsFunc(earlier, func(v statsapi.VolumeStats) bool { return v.Name == name })
}
