package snapshot

import (
	"errors"
	"fmt"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Reasons why a signal is unknown. They are fixed values so that comparing and keeping them costs nothing.
var (
	ErrNotReported   = errors.New("the stats summary has no figures for it")
	ErrNoPodsCgroup  = errors.New("the stats summary has no entry for the cgroup of all pods")
	ErrImplausible   = errors.New("the stats summary has figures that cannot be right")
	errNeverObserved = errors.New("it was not looked at")
)

// Unobserved is the observations before anything was looked at: everything is unknown.
func Unobserved() [NumSignals]Observation {
	var all [NumSignals]Observation
	for i := range all {
		all[i].Err = errNeverObserved
	}
	return all
}

// FailedObservations is the observations when the whole source failed.
func FailedObservations(cause error) [NumSignals]Observation {
	err := fmt.Errorf("the stats summary failed: %w", cause)
	var all [NumSignals]Observation
	for i := range all {
		all[i].Err = err
	}
	return all
}

// FromSummary reads every signal from a stats summary, each on its own: a missing part makes its own signals unknown
// and no others. A nil summary makes all of them unknown.
func FromSummary(summary *statsapi.Summary) [NumSignals]Observation {
	all := Unobserved()
	if summary == nil {
		return all
	}
	node := &summary.Node
	all[MemoryAvailable] = memoryObservation(node.Memory)
	all[AllocatableMemoryAvailable] = podsObservation(node.SystemContainers)
	all[PIDAvailable] = pidObservation(node.Rlimit)
	all[NodeFsAvailable], all[NodeFsInodesFree] = fsObservations(node.Fs)
	var image, container *statsapi.FsStats
	if node.Runtime != nil {
		image, container = node.Runtime.ImageFs, node.Runtime.ContainerFs
	}
	all[ImageFsAvailable], all[ImageFsInodesFree] = fsObservations(image)
	all[ContainerFsAvailable], all[ContainerFsInodesFree] = fsObservations(container)
	return all
}

// memoryObservation takes the figures as two's complement: a cgroup that uses more than its limit is reported with an
// available amount that has wrapped around, and so comes out as what it is, negative.
func memoryObservation(m *statsapi.MemoryStats) Observation {
	if m == nil || m.AvailableBytes == nil || m.WorkingSetBytes == nil {
		return Observation{Err: ErrNotReported}
	}
	return observation(int64(*m.AvailableBytes), int64(*m.AvailableBytes+*m.WorkingSetBytes), m.Time.Time)
}

func podsObservation(containers []statsapi.ContainerStats) Observation {
	for i := range containers {
		if containers[i].Name == statsapi.SystemContainerPods {
			return memoryObservation(containers[i].Memory)
		}
	}
	return Observation{Err: ErrNoPodsCgroup}
}

func fsObservations(fs *statsapi.FsStats) (space, inodes Observation) {
	space, inodes = Observation{Err: ErrNotReported}, Observation{Err: ErrNotReported}
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

func pidObservation(r *statsapi.RlimitStats) Observation {
	if r == nil || r.MaxPID == nil || r.NumOfRunningProcesses == nil {
		return Observation{Err: ErrNotReported}
	}
	return observation(*r.MaxPID-*r.NumOfRunningProcesses, *r.MaxPID, r.Time.Time)
}

func observation(available, capacity int64, date time.Time) Observation {
	at := WallTime(date)
	if capacity < 0 {
		return Observation{At: at, Err: ErrImplausible}
	}
	return Observation{Available: available, Capacity: capacity, At: at}
}
