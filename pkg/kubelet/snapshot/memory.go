package snapshot

import "k8s.io/apimachinery/pkg/types"

// MemoryReading is memory as the kernel shows it, without a stats summary.
type MemoryReading struct {
	// Node and Pods are the states of memory.available and allocatableMemory.available.
	Node, Pods Observation
	// ByPod is nil when pods were not asked for. Pods that could not be read are absent.
	ByPod map[types.UID]*Memory
}

// MemoryCounters are exact counts that are cheap to read, in bytes. Pods' inactive file pages are not among them: what the
// kernel says about those of one cgroup may be seconds old.
type MemoryCounters struct {
	// Node and Pods are used pages, page cache included.
	Node, Pods Bytes
	// NodeInactive are inactive file pages of the whole node.
	NodeInactive Bytes
}
