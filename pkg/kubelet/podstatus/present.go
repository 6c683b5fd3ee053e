package podstatus

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// present returns the status of a container that the runtime lists.
func (c *converter) present(seen records, spec *v1.Container, previous *v1.ContainerStatus) v1.ContainerStatus {
	record := seen.newest
	s := v1.ContainerStatus{
		Name:         record.Name,
		RestartCount: int32(record.RestartCount),
		Image:        record.Image,
		// The API field for the image's ID has always had the digested reference.
		ImageID:     record.ImageRef,
		ContainerID: record.ID.String(),
		State:       c.state(record, previous),
	}
	if t := s.State.Terminated; t != nil && record.State == kubecontainer.ContainerStateExited {
		t.Reason = c.terminationReason(record, previous)
	}
	if previous != nil {
		c.takeFromPrevious(&s, record, previous)
	}
	c.setImageVolumeRefs(&s, record)
	if seen.previous != nil {
		s.LastTerminationState = c.state(seen.previous, previous)
	}
	s.Resources = containerResources(spec, &s, record, previous)
	s.AllocatedResources = spec.Resources.Requests.DeepCopy()
	s.User = containerUser(record)
	if c.Features.ContainerStopSignals {
		s.StopSignal = record.StopSignal
	}
	return s
}

// state translates the runtime's state of a container.
func (c *converter) state(record *kubecontainer.Status, previous *v1.ContainerStatus) v1.ContainerState {
	switch {
	case record.State == kubecontainer.ContainerStateRunning:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(record.StartedAt)}}
	case record.State == kubecontainer.ContainerStateExited:
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode:    int32(record.ExitCode),
			Reason:      record.Reason,
			Message:     record.Message,
			StartedAt:   metav1.NewTime(record.StartedAt),
			FinishedAt:  metav1.NewTime(record.FinishedAt),
			ContainerID: record.ID.String(),
		}}
	case lost(record, previous):
		return v1.ContainerState{Terminated: c.unknownTermination()}
	default:
		// Created and not started, or in an unknown state: it is reported as waiting.
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	}
}

// terminationReason returns the runtime's reason, except for a container that the runtime reports as OOM-killed
// although it was not: then it is the one that the runtime has for others. The kernel log loses old records, which must
// not change what was reported: neither of this container, nor of one that was started again, which ended before there
// was a fence.
func (c *converter) terminationReason(record *kubecontainer.Status, previous *v1.ContainerStatus) string {
	switch {
	case record.Reason != reasonOOMKilled || reported(record, previous, reasonOOMKilled) || !c.spared(record, previous):
		return record.Reason
	case record.ExitCode == 0:
		return reasonCompleted
	}
	return reasonError
}

// spared reports whether the kernel log names another container of the pod. It names none if the processes of all
// containers are in the cgroup of the sandbox, as with runtimes that run a virtual machine for each pod. A container
// that was reported as spared remains so after the other one was removed.
func (c *converter) spared(record *kubecontainer.Status, previous *v1.ContainerStatus) bool {
	spared := c.Lookups.SparedByOOM
	if spared == nil || !spared(record.ID.ID) {
		return false
	}
	named := func(other *kubecontainer.Status) bool { return !spared(other.ID.ID) }
	return reported(record, previous, reasonError) || reported(record, previous, reasonCompleted) ||
		slices.ContainsFunc(c.Runtime.ContainerStatuses, named)
}

// reported reports whether the previous status has this termination of the container with this reason.
func reported(record *kubecontainer.Status, previous *v1.ContainerStatus, reason string) bool {
	return previous != nil && previous.ContainerID == record.ID.String() && previous.State.Terminated != nil &&
		previous.State.Terminated.Reason == reason
}

// Reasons of runtimes for a container that has ended. reasonOOMKilled is that of one of which the OOM killer has killed
// a process.
const (
	reasonOOMKilled = "OOMKilled"
	reasonError     = "Error"
	reasonCompleted = "Completed"
)

// lost is true for a container that was running before and whose state the runtime cannot determine now. If it were
// reported as waiting for its first start, a pod with restart policy Never might run twice.
func lost(record *kubecontainer.Status, previous *v1.ContainerStatus) bool {
	return record.State == kubecontainer.ContainerStateUnknown && previous != nil && previous.State.Running != nil
}

func (c *converter) unknownTermination() *v1.ContainerStateTerminated {
	reason := kubecontainer.ContainerReasonStatusUnknown
	if c.podRestarting {
		reason = RestartingAllContainers
	}
	return &v1.ContainerStateTerminated{Reason: reason, Message: messageNotLocated, ExitCode: exitCodeUnknown}
}

// takeFromPrevious copies from the previous status what the runtime does not report, or does not report any more after
// a container was removed.
func (c *converter) takeFromPrevious(
	s *v1.ContainerStatus, record *kubecontainer.Status, previous *v1.ContainerStatus,
) {
	// The mounts of a container never change, and the runtime has no names of volumes.
	s.VolumeMounts = slices.Clone(previous.VolumeMounts)
	running := record.State == kubecontainer.ContainerStateRunning
	if running && !c.Features.ChangeContainerStatusOnKubeletRestart {
		s.Started = previous.Started
	}
	if c.Features.RestartAllContainersOnContainerExits {
		s.RestartCount = max(s.RestartCount, previous.RestartCount)
		if running && previous.State.Terminated != nil && previous.RestartCount >= int32(record.RestartCount) {
			s.RestartCount = previous.RestartCount + 1
		}
		keepLastTermination(s, previous)
	}
	if lost(record, previous) {
		// The runtime's count does not include this termination.
		s.RestartCount = previous.RestartCount + 1
	}
}

// keepLastTermination sets the last termination of the previous status. After a normal restart the runtime still lists
// the previous container, which replaces it; a restart of all containers in place removes that container.
func keepLastTermination(s, previous *v1.ContainerStatus) {
	switch {
	case previous.ContainerID != s.ContainerID && previous.State.Terminated != nil:
		s.LastTerminationState.Terminated = previous.State.Terminated
	case previous.LastTerminationState.Terminated != nil:
		s.LastTerminationState.Terminated = previous.LastTerminationState.Terminated
	}
}

// containerUser returns the identity of the container's first process, if the runtime reports it (KEP-3619).
func containerUser(record *kubecontainer.Status) *v1.ContainerUser {
	if record.User == nil {
		return nil
	}
	user := &v1.ContainerUser{}
	if linux := record.User.Linux; linux != nil {
		user.Linux = &v1.LinuxContainerUser{
			UID:                linux.UID,
			GID:                linux.GID,
			SupplementalGroups: slices.Clone(linux.SupplementalGroups),
		}
	}
	return user
}
