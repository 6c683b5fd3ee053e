package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
)

// podRemovalTimeout bounds the orderly removal of all pods together.
const podRemovalTimeout = 60 * time.Second

// runtimeService connects to containerd as a kubelet does.
func runtimeService(ctx context.Context, layout Layout) (internalapi.RuntimeService, error) {
	service, err := remote.NewRemoteRuntimeService(ctx, "unix://"+layout.Socket(), podRemovalTimeout*TimeFactor(), nil,
		false)
	if err != nil {
		return nil, fmt.Errorf("connect to containerd: %w", err)
	}
	return service, nil
}

// removePods removes every pod through the runtime, so that networks and mounts are released in order. It may leave
// some behind.
func removePods(ctx context.Context, layout Layout) error {
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, klog.Logger{}), podRemovalTimeout*TimeFactor())
	defer cancel()
	service, err := runtimeService(ctx, layout)
	if err != nil {
		return err
	}
	sandboxes, err := service.ListPodSandbox(ctx, nil)
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	if err := killContainers(ctx, service); err != nil {
		return err
	}
	var errs []error
	for _, sandbox := range sandboxes {
		errs = append(errs, service.StopPodSandbox(ctx, sandbox.Id), service.RemovePodSandbox(ctx, sandbox.Id))
	}
	return errors.Join(errs...)
}

// killContainers kills every container, so that the clean-up does not wait for grace periods one after the other.
func killContainers(ctx context.Context, service internalapi.RuntimeService) error {
	running := &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}
	containers, err := service.ListContainers(ctx, running)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var errs []error
	for _, container := range containers {
		errs = append(errs, service.StopContainer(ctx, container.Id, 0))
	}
	return errors.Join(errs...)
}

// ContainerPID returns the PID, on the machine, of the first process of a running container. The id is as in a
// container status: containerd://….
func (c *Cluster) ContainerPID(ctx context.Context, id string) (int, error) {
	if c.runtime == nil {
		service, err := runtimeService(ctx, c.config.Layout)
		if err != nil {
			return 0, err
		}
		c.runtime = service
	}
	status, err := c.runtime.ContainerStatus(ctx, strings.TrimPrefix(id, "containerd://"), true)
	if err != nil {
		return 0, fmt.Errorf("status of container %s: %w", id, err)
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil {
		return 0, fmt.Errorf("details of container %s: %w", id, err)
	}
	return info.PID, nil
}
