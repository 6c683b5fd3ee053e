package server

import (
	"context"
	"fmt"
	"io"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/images"
)

// GetKubeletContainerLogs copies the log of one container to stdout and stderr, either of which may be nil. With
// options.Follow it returns when the container has ended or ctx is done.
//
//nolint:revive // the stock server has this many parameters
func (h *Host) GetKubeletContainerLogs(
	ctx context.Context, fullName, container string, options *v1.PodLogOptions, stdout, stderr io.Writer,
) error {
	pod, err := h.podForLogs(fullName)
	if err != nil {
		return err
	}
	status, known := h.StatsHost.cfg.Status.GetPodStatus(pod.UID)
	if !known {
		// The agent has just started and has not synchronized this pod yet.
		status = pod.Status
	}
	id, err := containerForLogs(pod.Name, &status, container, options.Previous)
	if err != nil {
		return err
	}
	if stdout != nil {
		// Send the response header, even if the container has no output for a long time.
		if _, err := stdout.Write(nil); err != nil {
			return err
		}
	}
	return h.cfg.Runtime.GetContainerLogs(ctx, pod, id, options, stdout, stderr)
}

// podForLogs returns the pod whose containers run: for a mirror pod that is its static pod.
func (h *Host) podForLogs(fullName string) (*v1.Pod, error) {
	name, namespace, err := kubecontainer.ParsePodFullName(fullName)
	if err != nil {
		return nil, fmt.Errorf("unable to parse pod full name %q: %w", fullName, err)
	}
	found, known := h.GetPodByName(namespace, name)
	if !known {
		return nil, fmt.Errorf("pod %q cannot be found - no logs available", name)
	}
	pod, _, _ := h.cfg.Identity.GetPodAndMirrorPod(found)
	if pod == nil {
		return nil, fmt.Errorf("mirror pod %q does not have a corresponding pod", name)
	}
	return pod, nil
}

// containerForLogs returns the instance of a container whose log is requested: the running one, else the last that has
// ended; with previous, the one before.
func containerForLogs(pod string, status *v1.PodStatus, name string, previous bool) (kubecontainer.ContainerID, error) {
	container := containerStatus(status, name)
	if container == nil {
		return kubecontainer.ContainerID{}, fmt.Errorf("container %q in pod %q is not available", name, pod)
	}
	last := terminatedID(container.LastTerminationState.Terminated)
	if previous {
		if last == "" {
			return kubecontainer.ContainerID{}, fmt.Errorf("previous terminated container %q in pod %q not found", name, pod)
		}
		return kubecontainer.ParseContainerID(last), nil
	}
	if container.State.Running != nil {
		return kubecontainer.ParseContainerID(container.ContainerID), nil
	}
	if container.State.Terminated == nil && container.LastTerminationState.Terminated == nil {
		return kubecontainer.ContainerID{}, errNotStarted(pod, name, container.State.Waiting)
	}
	// An instance that could not be created is terminated and has no ID; the instance before it has the log.
	for _, id := range []string{terminatedID(container.State.Terminated), last} {
		if id != "" {
			return kubecontainer.ParseContainerID(id), nil
		}
	}
	return kubecontainer.ContainerID{}, fmt.Errorf("container %q in pod %q is terminated", name, pod)
}

func containerStatus(status *v1.PodStatus, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{
		status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func terminatedID(state *v1.ContainerStateTerminated) string {
	if state == nil {
		return ""
	}
	return state.ContainerID
}

func errNotStarted(pod, container string, waiting *v1.ContainerStateWaiting) error {
	cause := " - no logs yet"
	if waiting != nil {
		switch waiting.Reason {
		case images.ErrImagePull.Error():
			cause = ": image can't be pulled"
		case images.ErrImagePullBackOff.Error():
			cause = ": trying and failing to pull image"
		default:
			cause = ": " + waiting.Reason
		}
	}
	return fmt.Errorf("container %q in pod %q is waiting to start%s", container, pod, cause)
}
