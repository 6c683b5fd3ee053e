package snapshot

import "k8s.io/apimachinery/pkg/types"

// Counting says what counts as available memory beside what is not used. The zero value is stock's: inactive file
// pages, which makes it a limit less the working set.
//
// What is counted beyond that is a promise of the kernel. While tasks stand still since memory is being reclaimed the
// promise does not hold, and readers count as stock does.
type Counting struct {
	// Reclaimable counts inactive file pages and half of the active ones, both without dirty ones and those under
	// writeback. The other half stays used: it is what would have to be read again and again (kernel, mm/workingset.c).
	Reclaimable bool
	// Swap counts free swap on the node, as far as there is anonymous memory to fill it with, and what pods have in swap
	// as used by them. What all pods together may have is as before: which pods may swap is a matter of each container.
	Swap bool
	// Hugepages takes away what is reserved for huge pages, which nobody can use as memory (kubernetes issue 137984). It
	// concerns the node only.
	Hugepages bool
}

// Stock reports whether it is what stock counts.
func (c Counting) Stock() bool { return c == Counting{} }

// MemoryReading is memory as the kernel shows it, without a stats summary.
type MemoryReading struct {
	// Node and Pods are the states of memory.available and allocatableMemory.available.
	Node, Pods Observation
	// ByPod is nil when pods were not asked for. Pods that could not be read are absent.
	ByPod map[types.UID]*Memory
}

// MemoryCounters are exact counts that are cheap to read, in bytes. What counts as available of the pods' pages is not
// among them: what the kernel says about those of one cgroup may be seconds old.
type MemoryCounters struct {
	// Node and Pods are used pages, page cache included.
	Node, Pods Bytes
	// NodeSpare is what counts as available on the whole node beside pages that are not used. It may be negative.
	NodeSpare Bytes
}

// CertainRelease is what certainly comes back when the pod ends: its anonymous memory, and the files in its volumes in
// memory. Page cache stays, and the kernel may need it. It is unknown when the anonymous memory is.
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

// AnonymousMemory is what comes back as soon as no process of the pod runs any more, by the pod's cgroup, else by the
// stats, which call it RSS.
func (p *Pod) AnonymousMemory() Value[Bytes] {
	if p.Cgroup != nil && p.Cgroup.Anonymous.Known {
		return p.Cgroup.Anonymous
	}
	if p.Usage == nil || !plausible(p.Usage.AnonymousMemory) {
		return Value[Bytes]{}
	}
	return p.Usage.memory(p.Usage.AnonymousMemory)
}
