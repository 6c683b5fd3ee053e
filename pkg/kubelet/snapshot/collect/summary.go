package collect

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// FromSummary returns the observations of all signals in a stats summary. A part that is missing makes its own signals
// unknown and no others; without a summary (nil) all are unknown.
func FromSummary(summary *statsapi.Summary) [snapshot.NumSignals]snapshot.Observation {
	all := snapshot.Unobserved()
	if summary == nil {
		return all
	}
	node := &summary.Node
	all[snapshot.MemoryAvailable] = memoryObservation(node.Memory)
	all[snapshot.AllocatableMemoryAvailable] = podsObservation(node.SystemContainers)
	all[snapshot.PIDAvailable] = pidObservation(node.Rlimit)
	all[snapshot.NodeFsAvailable], all[snapshot.NodeFsInodesFree] = fsObservations(node.Fs)
	var image, container *statsapi.FsStats
	if node.Runtime != nil {
		image, container = node.Runtime.ImageFs, node.Runtime.ContainerFs
	}
	all[snapshot.ImageFsAvailable], all[snapshot.ImageFsInodesFree] = fsObservations(image)
	all[snapshot.ContainerFsAvailable], all[snapshot.ContainerFsInodesFree] = fsObservations(container)
	return all
}

// memoryObservation converts amounts as two's complement: stock reports a cgroup that uses more than its limit with an
// available amount that has wrapped around, which is negative again as an int64.
func memoryObservation(m *statsapi.MemoryStats) snapshot.Observation {
	if m == nil || m.AvailableBytes == nil || m.WorkingSetBytes == nil {
		return snapshot.Observation{Err: snapshot.ErrNotReported}
	}
	return observation(int64(*m.AvailableBytes), int64(*m.AvailableBytes+*m.WorkingSetBytes), m.Time.Time)
}

func podsObservation(containers []statsapi.ContainerStats) snapshot.Observation {
	for i := range containers {
		if containers[i].Name == statsapi.SystemContainerPods {
			return memoryObservation(containers[i].Memory)
		}
	}
	return snapshot.Observation{Err: snapshot.ErrNoPodsCgroup}
}

func fsObservations(fs *statsapi.FsStats) (space, inodes snapshot.Observation) {
	space, inodes = snapshot.Observation{Err: snapshot.ErrNotReported}, snapshot.Observation{Err: snapshot.ErrNotReported}
	if fs == nil {
		return space, inodes
	}
	if fs.AvailableBytes != nil && fs.CapacityBytes != nil {
		space = observation(int64(*fs.AvailableBytes), int64(*fs.CapacityBytes), fs.Time.Time)
	}
	if fs.InodesFree != nil && fs.Inodes != nil {
		inodes = observation(int64(*fs.InodesFree), int64(*fs.Inodes), fs.Time.Time)
	}
	return space, inodes
}

func pidObservation(r *statsapi.RlimitStats) snapshot.Observation {
	if r == nil || r.MaxPID == nil || r.NumOfRunningProcesses == nil {
		return snapshot.Observation{Err: snapshot.ErrNotReported}
	}
	return observation(*r.MaxPID-*r.NumOfRunningProcesses, *r.MaxPID, r.Time.Time)
}

func observation(available, capacity int64, date time.Time) snapshot.Observation {
	at := snapshot.WallTime(date)
	if capacity < 0 {
		return snapshot.Observation{At: at, Err: snapshot.ErrImplausible}
	}
	return snapshot.Observation{Available: available, Capacity: capacity, At: at}
}
