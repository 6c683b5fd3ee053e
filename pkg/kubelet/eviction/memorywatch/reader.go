package memorywatch

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Reader reads memory from the kernel, without a stats summary. Package snapshot/collect has one.
type Reader interface {
	// Counters is cheap: it is called many times a second when memory is scarce.
	Counters(how snapshot.Counting) (snapshot.MemoryCounters, error)
	// ReadMemory reads the node, all pods together, and each pod. Amounts that cannot be read are unknown.
	ReadMemory(how snapshot.Counting) snapshot.MemoryReading
}

// PodReader reads the memory of single pods, faster than ReadMemory reads all. A Reader may have these methods;
// without them there is no growth in milliseconds, and each reading is one of all pods.
type PodReader interface {
	// PodUsages appends the counters of all pods to a list. It is called many times a second when memory is scarce.
	PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage
	// ReadPod reads the memory of a pod. It is called as often, for a few pods.
	ReadPod(how snapshot.Counting, uid types.UID) (snapshot.PodMemory, error)
	// ReadPods takes a reading of the node, of all pods together, and of these pods only.
	ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading
}

// CPUCounter says how many CPUs the node has: each of them charges pages to cgroups in advance. A Reader may implement
// it; without it there are at most four.
type CPUCounter interface {
	CPUs() int
}

// ThreadClock measures the CPU time of readings. A Reader may implement it. Without it the elapsed time counts,
// which is far more on a node whose CPUs are busy: the pauses between readings would then be seconds long while pods
// use up memory.
type ThreadClock interface {
	// LockThread keeps the calling goroutine on its thread until UnlockThread is called.
	LockThread()
	UnlockThread()
	// ThreadTime returns the CPU time that the calling thread has used.
	ThreadTime() time.Duration
}

// ReadNode reads the node and all pods together, without single pods if the reader can do that.
func ReadNode(reader Reader, counting snapshot.Counting) snapshot.MemoryReading {
	if quick, ok := reader.(PodReader); ok {
		return quick.ReadPods(counting, nil)
	}
	return reader.ReadMemory(counting)
}
