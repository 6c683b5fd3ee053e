package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is what was known at one instant. It is immutable, together with everything it points to.
type Snapshot struct {
	// Taken is when the snapshot was taken: "now" for all decisions made from it.
	Taken time.Time
	// WallTime is the same instant by the wall clock. Only dates of sources are compared with it.
	WallTime time.Time
	// Signals holds one observation per signal, indexed by Signal.
	Signals [NumSignals]Observation
	Layout  Layout
	// Pods are the pods that may have anything running, in no particular order. UIDs are unique. When nothing is scarce
	// those may be left out that nothing can be decided about.
	Pods []Pod
	// InFlight lists evictions that were begun and are not yet over, at most one per pod.
	InFlight []InFlight
	// LastRelease is when an eviction last came to its end; zero before the first.
	LastRelease time.Time
	// Reclaims lists what is known of node-level reclaim, at most one per device and unit.
	Reclaims []Reclaim
	// RuntimeSilent: the container runtime does not tell what pods use, since it hangs or fails. What a pod has on disks
	// is not known then, and does not come free; pods are stopped late, past the runtime (package escalation).
	RuntimeSilent bool
	// PodsAwaited: the container runtime is slow, and has not told yet what pods use at this time. What pods have on
	// disks is as it told last.
	PodsAwaited bool
}

// Pod is a pod and what it uses. Sums are derived on demand, since most rounds need none of them. Snapshots of several
// rounds share what it points to.
type Pod struct {
	*Facts
	// Usage is what the stats report, nil when they have nothing about the pod (a pod that is just starting, or a source
	// that failed).
	Usage *Usage
	// Cgroup is the pod's memory read from its cgroup, nil unless it was read. It takes precedence over Usage.
	Cgroup *Memory
	// Images are the bytes of images that only this pod uses. They are Unknown except where images are apart from writable
	// layers.
	Images Bytes
	// Terminating is set when the pod's termination was requested before and outside of eviction.
	Terminating *Termination
}

// Memory is a pod's memory as its cgroup shows it, and what else is read there.
type Memory struct {
	WorkingSet Value[Bytes]
	// Anonymous is what certainly comes back when the pod is killed.
	Anonymous Value[Bytes]
	// Processes is unknown where processes are not counted.
	Processes Value[PIDs]
}

// Termination says how long a pod that is already being stopped may take.
type Termination struct {
	// Deadline is when its grace period ends; zero if that is not known.
	Deadline time.Time
}

// InFlight is one eviction between its beginning and the moment when all that the pod used is given back.
type InFlight struct {
	UID types.UID
	// Signal is what the pod was evicted for, NoSignal for a violation of its own local storage limits.
	Signal Signal
	// Hard is true when a hard threshold caused it.
	Hard  bool
	State InFlightState
	// Started is when the kill was requested, Changed when State was entered.
	Started, Changed time.Time
	// Deadline is when the pod's grace period ends.
	Deadline time.Time
	// Expected is an upper bound of what its end gives back: the most that it was seen to use since it was asked to stop.
	Expected Release
}

// InFlightState is how far an eviction has come.
type InFlightState uint8

const (
	// Stopping: the pod worker was asked and has not answered.
	Stopping InFlightState = iota
	// Stopped: no container runs any more, but cgroups or volumes are still there.
	Stopped
	// Failed: the kill returned an error. The pod may still be running.
	Failed
)

// String is for logs.
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

// Release is what the end of a pod gives back.
type Release struct {
	// Memory is an upper bound, the working set. CertainMemory is what comes back in any case; what is unknown counts as
	// nothing.
	Memory, CertainMemory Bytes
	// AnonymousMemory is the part of both that comes back with the last process of the pod.
	AnonymousMemory Bytes
	PIDs            PIDs
	// Devices is indexed by Device.
	Devices [NumDevices]FsRelease
}

// FsRelease is what the end of a pod gives back on one device.
type FsRelease struct {
	Bytes  Bytes
	Inodes Inodes
}

// Reclaim is what is known of the node-level reclaim of a device (dead containers, unused images) for bytes or for
// inodes.
type Reclaim struct {
	Device Device
	// Inodes: it was inodes that were needed, not bytes.
	Inodes bool
	// Running is true while an attempt is under way. Started is its beginning, or that of the last attempt.
	Running bool
	Started time.Time
	// Finished is when the last attempt that came to an end did so, Err how; zero before the first.
	Finished time.Time
	Err      error
	// Got is what the last attempt that came to an end brought.
	Got Reclaimed
}

// Reclaimed is what a node-level reclaim brought.
type Reclaimed struct {
	// Containers and Images are how many were removed.
	Containers, Images int
	// Freed is by how much more was available at its end than at its beginning, in the unit that was asked for. It is
	// negative when others took more than came free.
	Freed int64
	// Missing is what the file system itself said at its end that was still missing; 0 when there was enough, or it did
	// not say.
	Missing int64
	// More: it removed something, ended because there was enough, and may have more to give.
	More bool
}
