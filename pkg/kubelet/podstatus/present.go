package podstatus

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// present is the status of a container that the runtime knows.
func (c *converter) present(seen records, spec *v1.Container, previous *v1.ContainerStatus) v1.ContainerStatus {
	record := seen.newest
	s := v1.ContainerStatus{
		Name:         record.Name,
		RestartCount: int32(record.RestartCount),
		Image:        record.Image,
		// The digested reference is what has always been published as the image's ID.
		ImageID:     record.ImageRef,
		ContainerID: record.ID.String(),
		State:       c.state(record, previous),
	}
	if previous != nil {
		c.carryOver(&s, record, previous)
	}
	c.setImageVolumeRefs(&s, record)
	if seen.before != nil {
		s.LastTerminationState = c.state(seen.before, previous)
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
		return v1.ContainerState{Terminated: c.endNotSeen()}
	default:
		// Created but not started, or in a state the runtime cannot name: it is on its way to run.
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	}
}

// lost is true for a container that ran when last seen and that the runtime cannot find out about now. It must not be
// taken for one that waits for its first start, or a pod that runs once might run twice.
func lost(record *kubecontainer.Status, previous *v1.ContainerStatus) bool {
	return record.State == kubecontainer.ContainerStateUnknown && previous != nil && previous.State.Running != nil
}

func (c *converter) endNotSeen() *v1.ContainerStateTerminated {
	reason := kubecontainer.ContainerReasonStatusUnknown
	if c.podRestarting {
		reason = RestartingAllContainers
	}
	return &v1.ContainerStateTerminated{Reason: reason, Message: messageNotLocated, ExitCode: exitCodeUnknown}
}

// carryOver takes from the previous status what the runtime does not know, or has forgotten with a container that was
// removed.
func (c *converter) carryOver(s *v1.ContainerStatus, record *kubecontainer.Status, previous *v1.ContainerStatus) {
	// The mounts of a container never change, and the runtime does not know the names of volumes.
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
		carryTermination(s, previous)
	}
	if lost(record, previous) {
		// The runtime's count does not have this end in it.
		s.RestartCount = previous.RestartCount + 1
	}
}

// carryTermination keeps the last termination. After a normal restart the runtime still has the container before, which
// is better and used instead; a restart of all containers in place removes them.
func carryTermination(s, previous *v1.ContainerStatus) {
	switch {
	case previous.ContainerID != s.ContainerID && previous.State.Terminated != nil:
		s.LastTerminationState.Terminated = previous.State.Terminated
	case previous.LastTerminationState.Terminated != nil:
		s.LastTerminationState.Terminated = previous.LastTerminationState.Terminated
	}
}

// containerUser is who the first process of the container runs as, if the runtime says so (KEP-3619).
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
