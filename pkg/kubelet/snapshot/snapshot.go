package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is an observation of the node at one instant. It is immutable, with everything that it refers to.
type Snapshot struct {
	// Taken is when the snapshot was taken, on the monotonic clock. Decisions use it as the current time.
	Taken time.Time
	// WallTime is the same instant by the wall clock. It is compared only with dates of sources.
	WallTime time.Time
	// Signals has one observation for each signal, indexed by Signal.
	Signals [NumSignals]Observation
	Layout  Layout
	// Pods are the pods that may have running containers, in no particular order; UIDs are unique. Without pressure, pods
	// that no decision can be about may be missing.
	Pods []Pod
	// InFlight are the evictions that have begun and whose pods are not cleaned up yet, at most one per pod. Pods that
	// have ended for another reason, and are not in Pods any more, are listed too, until they are cleaned up.
	InFlight []InFlight
	// Requests are the pods whose eviction plugins ask for, at most one request per pod, in the order in which they are to
	// be evicted.
	Requests []Request
	// LastRelease is when a pod of InFlight was last cleaned up; zero before the first.
	LastRelease time.Time
	// Reclaims are the last node-level reclaims, at most one per device and unit.
	Reclaims []Reclaim
	// RuntimeSilent: the container runtime hangs or fails, so that there are no pod stats. The usage of disks by pods is
	// unknown and cannot be released; pods are stopped late, without the runtime (package escalation).
	RuntimeSilent bool
	// MemoryRate is how fast memory of the node that does not count as available grew in the last moments, or that of all
	// pods together if they have less available and no threshold of the node is met; nil if that was not measured.
	MemoryRate *Rate
	// LongMemoryRate is the same over LongRateWindow or a little more, less if it was not measured for so long.
	LongMemoryRate *Rate
	// PodsAwaited: the container runtime is slow, and the current collection of pod stats is not complete. The usage of
	// disks by pods is that of the last complete collection.
	PodsAwaited bool
}

// Pod is a pod and its usage. Sums are computed when they are needed, since most rounds need none. Snapshots of several
// rounds share what a Pod refers to.
type Pod struct {
	*Facts
	// Usage is the usage by the pod stats, nil if they do not include the pod (it has just been started, or the source
	// failed).
	Usage *Usage
	// Cgroup is the pod's memory read from its cgroup, nil unless that was read. It takes precedence over Usage.
	Cgroup *Memory
	// MemoryRate is how fast the memory of the pod grew in the last moments, page cache excluded; nil if that was not
	// measured. It is only used together with Snapshot.MemoryRate.
	MemoryRate *Rate
	// Images is the size of the images that only this pod uses. It is Unknown unless images are on another device than
	// writable layers.
	Images Bytes
	// Terminating is not nil if the pod's termination was requested for another reason than eviction.
	Terminating *Termination
}

// Memory is what is read from the cgroup of a pod.
type Memory struct {
	WorkingSet Value[Bytes]
	// Anonymous is the anonymous memory, which is free when the pod is killed.
	Anonymous Value[Bytes]
	// Processes is unknown if the cgroup does not count processes.
	Processes Value[PIDs]
}

// Termination is a termination that eviction did not request.
type Termination struct {
	// Deadline is when the grace period ends; zero if that is unknown.
	Deadline time.Time
}

// InFlight is an eviction that has begun, until everything that the pod used is released.
type InFlight struct {
	UID types.UID
	// Signal is the signal of the threshold for which the pod is evicted, NoSignal for a limit on local storage and for a
	// request of eviction plugins.
	Signal Signal
	// Requested is true if the cause is a request of eviction plugins.
	Requested bool
	// Hard is true if the cause is a hard threshold or a limit.
	Hard  bool
	State InFlightState
	// Started is when the kill was requested, zero for a pod that was not evicted. Changed is when State last changed.
	Started, Changed time.Time
	// Deadline is when the pod's grace period ends.
	Deadline time.Time
	// Expected is an upper bound of what the end of the pod releases, by its last known usage.
	Expected Release
}

// InFlightState is the progress of an eviction.
type InFlightState uint8

const (
	// Stopping: the kill was requested and has not ended.
	Stopping InFlightState = iota
	// Stopped: no container runs; cgroups or volumes may still exist.
	Stopped
	// Failed: the kill has ended with an error. Containers may still run.
	Failed
)

// String returns the state as logs show it.
func (s InFlightState) String() string {
	switch s {
	case Stopping:
		return "stopping"
	case Stopped:
		return "stopped"
	case Failed:
		return "failed"
	}
	return "unknown"
}

// Release is what the end of a pod releases. Unknown amounts are zero.
type Release struct {
	// Memory is an upper bound, the working set; CertainMemory is the part that comes free in any case.
	Memory, CertainMemory Bytes
	// AnonymousMemory is the part of both that is free when the last process of the pod has ended.
	AnonymousMemory Bytes
	PIDs            PIDs
	// Devices is indexed by Device.
	Devices [NumDevices]FsRelease
}

// FsRelease is what the end of a pod releases on one device.
type FsRelease struct {
	Bytes  Bytes
	Inodes Inodes
}

// Reclaim is the state of node-level reclaim (of dead containers and unused images) for a device and a unit.
type Reclaim struct {
	Device Device
	// Inodes: the unit is inodes, not bytes.
	Inodes bool
	// Running is true while a reclaim is in progress. Started is when that, or else the last one, began.
	Running bool
	Started time.Time
	// Finished is when a reclaim last ended, Err its error; zero before the first.
	Finished time.Time
	Err      error
	// Got is the result of the reclaim that ended last.
	Got Reclaimed
}

// Reclaimed is the result of a node-level reclaim.
type Reclaimed struct {
	// Containers and Images are the numbers of removed containers and images.
	Containers, Images int
	// Freed is by how much the available amount grew from its beginning to its end, in the unit of the request. It is
	// negative if more was used meanwhile than was freed.
	Freed int64
	// Missing is how much was missing by a measurement of the file system at its end; 0 if there was enough, or if the
	// measurement failed.
	Missing int64
	// More: it removed something, stopped because enough was available, and may be able to remove more.
	More bool
}
