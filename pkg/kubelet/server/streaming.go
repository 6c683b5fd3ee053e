package server

import (
	"context"
	"fmt"
	"net/url"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// runningPod returns a pod of the runtime by its UID or that of its mirror pod, or by full name if uid is empty. It
// returns an empty pod if the pod does not run.
func (h *Host) runningPod(ctx context.Context, fullName string, uid types.UID) (kubecontainer.Pod, error) {
	running, err := h.cfg.Runtime.GetPods(ctx, false)
	if err != nil {
		return kubecontainer.Pod{}, err
	}
	resolved := h.cfg.Identity.TranslatePodUID(uid)
	return kubecontainer.Pods(running).FindPod(fullName, types.UID(resolved)), nil
}

// runningContainer returns a running container, nil if there is none of that name.
func (h *Host) runningContainer(
	ctx context.Context, fullName string, uid types.UID, name string,
) (*kubecontainer.Container, error) {
	pod, err := h.runningPod(ctx, fullName, uid)
	if err != nil {
		return nil, err
	}
	return pod.FindContainerByName(name), nil
}

// containerForExec is runningContainer for exec and run, with the error for a missing container.
func (h *Host) containerForExec(
	ctx context.Context, fullName string, uid types.UID, name string,
) (kubecontainer.ContainerID, error) {
	container, err := h.runningContainer(ctx, fullName, uid, name)
	if err != nil {
		return kubecontainer.ContainerID{}, err
	}
	if container == nil {
		return kubecontainer.ContainerID{}, fmt.Errorf("container not found (%q)", name)
	}
	return container.ID, nil
}

// RunInContainer runs a command until it ends or ctx ends, and returns its output on both streams.
func (h *Host) RunInContainer(
	ctx context.Context, fullName string, uid types.UID, name string, cmd []string,
) ([]byte, error) {
	id, err := h.containerForExec(ctx, fullName, uid, name)
	if err != nil {
		return nil, err
	}
	return h.cfg.Runner.RunInContainer(ctx, id, cmd, 0)
}

// GetExec returns the URL at which the runtime serves an exec session.
//
//nolint:revive // the stock server has this many parameters
func (h *Host) GetExec(
	ctx context.Context, fullName string, uid types.UID, name string, cmd []string, o remotecommand.Options,
) (*url.URL, error) {
	id, err := h.containerForExec(ctx, fullName, uid, name)
	if err != nil {
		return nil, err
	}
	return h.cfg.Streaming.GetExec(ctx, id, cmd, o.Stdin, o.Stdout, o.Stderr, o.TTY)
}

// GetAttach returns the URL at which the runtime serves an attach session. Whether there is a terminal depends on the
// pod's specification and not on the request, because the process was started with or without one.
func (h *Host) GetAttach(
	ctx context.Context, fullName string, uid types.UID, name string, o remotecommand.Options,
) (*url.URL, error) {
	container, err := h.runningContainer(ctx, fullName, uid, name)
	if err != nil {
		return nil, err
	}
	if container == nil {
		return nil, missingContainer(name, fullName)
	}
	pod, known := h.cfg.Identity.GetPodByFullName(fullName)
	if !known || (uid != "" && pod.UID != uid) {
		return nil, fmt.Errorf("pod %s not found", fullName)
	}
	spec := kubecontainer.GetContainerSpec(pod, name)
	if spec == nil {
		return nil, missingContainer(name, fullName)
	}
	return h.cfg.Streaming.GetAttach(ctx, container.ID, o.Stdin, o.Stdout, o.Stderr, spec.TTY)
}

// GetPortForward returns the URL at which the runtime serves a port-forward session.
func (h *Host) GetPortForward(
	ctx context.Context, name, namespace string, uid types.UID, o portforward.V4Options,
) (*url.URL, error) {
	fullName := kubecontainer.BuildPodFullName(name, namespace)
	pod, err := h.runningPod(ctx, fullName, uid)
	if err != nil {
		return nil, err
	}
	if pod.IsEmpty() {
		return nil, fmt.Errorf("pod not found (%q)", fullName)
	}
	return h.cfg.Streaming.GetPortForward(ctx, name, namespace, types.UID(h.cfg.Identity.TranslatePodUID(uid)), o.Ports)
}

func missingContainer(name, podFullName string) error {
	return fmt.Errorf("container %s not found in pod %s", name, podFullName)
}
