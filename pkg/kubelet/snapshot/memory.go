package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Counting defines which memory counts as available in addition to unused memory. The zero value is stock's way:
// inactive file pages do, so that available memory is a limit minus the working set.
//
// Memory that counts in addition to that is an estimate of what the kernel can reclaim. While tasks stall because
// memory is being reclaimed the estimate does not hold, and package collect counts as stock does.
type Counting struct {
	// Reclaimable counts inactive file pages and half of the active ones, without dirty pages and pages under writeback.
	// The other half counts as used: it would have to be read from disk again soon (mm/workingset.c of the kernel).
	Reclaimable bool
	// Swap counts free swap of the node as available, as far as there is anonymous memory to swap out, and what pods have
	// in swap as used by them. It does not change what is available to all pods together: which pods may swap is a setting
	// of each container.
	Swap bool
	// Hugepages subtracts memory that is reserved for huge pages, which cannot be used otherwise (kubernetes issue
	// 137984). It applies to the node only.
	Hugepages bool
}

// Stock reports whether memory is counted as by stock.
func (c Counting) Stock() bool { return c == Counting{} }

// LongRateWindow is the window of Snapshot.LongMemoryRate. A pod that grows in steps may stand still for as long; its
// next step is seen within milliseconds.
const LongRateWindow = 250 * time.Millisecond

// Rate is a growth by readings in quick succession, milliseconds apart.
type Rate struct {
	// PerSecond is negative if usage decreased.
	PerSecond Bytes
	// Window is the time between the first and the last reading.
	Window time.Duration
	// Still is true if the counter of a pod, which has its page cache too, has not changed in that time, except for what
	// it may lag.
	Still bool
}

// PodUsage is the counter of the pages that a pod uses, page cache included.
type PodUsage struct {
	UID   types.UID
	Usage Bytes
}

// PodMemory is the memory of one pod.
type PodMemory struct {
	// Memory has no processes.
	Memory
	// Resident is the memory without page cache: anonymous memory, files in memory, and memory of the kernel.
	Resident Bytes
}

// MemoryReading is memory usage read from cgroup files and /proc, without a stats summary.
type MemoryReading struct {
	// Node and Pods are the states of memory.available and allocatableMemory.available.
	Node, Pods Observation
	// PodsUsed is what all pods used, page cache included, by the counter that Pods is computed from; zero if that is not
	// known.
	PodsUsed Bytes
	// ByPod is nil if the memory of pods was not requested. Pods that could not be read are missing.
	ByPod map[types.UID]*Memory
	// Rate, LongRate and PodRates are those of a snapshot (MemoryRate); nil if they were not measured.
	Rate, LongRate *Rate
	PodRates       map[types.UID]*Rate
}

// MemoryCounters are exact counters that are cheap to read, in bytes. They do not include which of the pods' pages
// count as available: memory.stat of a cgroup may be seconds old.
type MemoryCounters struct {
	// Node and Pods are used pages, page cache included.
	Node, Pods Bytes
	// NodeSpare is what counts as available on the node in addition to unused pages. It may be negative.
	NodeSpare Bytes
	// NodeCapacity is the size of the node's memory, which changes when a virtual machine is given more or less; zero if
	// it is not known.
	NodeCapacity Bytes
	// At is the date from before they were read; zero if it is not known.
	At time.Time
}

// CertainRelease returns what the end of the pod releases in any case: its anonymous memory, and the files in its
// memory-backed volumes. Page cache may stay in memory. It is unknown if the anonymous memory is.
func (p *Pod) CertainRelease() Value[Bytes] {
	v := p.AnonymousMemory()
	if !v.Known || p.Usage == nil || p.Facts == nil {
		return v
	}
	s := sum[Bytes]{amount: v.Amount}
	p.eachVolume(p.MemoryVolumes, func(fs *FsUsage) { s.add(fs.Bytes) })
	v.Amount = s.amount
	return v
}

// AnonymousMemory returns the memory that is free as soon as no process of the pod runs. The source is the cgroup of
// the pod or, without a reading of that, RSS of the stats.
func (p *Pod) AnonymousMemory() Value[Bytes] {
	if p.Cgroup != nil && p.Cgroup.Anonymous.Known {
		return p.Cgroup.Anonymous
	}
	if p.Usage == nil || !plausible(p.Usage.AnonymousMemory) {
		return Value[Bytes]{}
	}
	return p.Usage.memory(p.Usage.AnonymousMemory)
}
