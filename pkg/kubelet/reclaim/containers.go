package reclaim

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
)

// deadContainers lists the containers that have exited, with their IDs in the form of the runtime manager. It leaves
// out containers in an unknown state, which may be running, and created ones, which are about to be started.
func (m *Manager) deadContainers(ctx context.Context) ([]plan.Container, map[string]kubecontainer.ContainerID, error) {
	pods, err := m.config.Containers.GetPods(ctx, true)
	if err != nil {
		return nil, nil, err
	}
	var list []plan.Container
	ids := map[string]kubecontainer.ContainerID{}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			if c.State != kubecontainer.ContainerStateExited {
				continue
			}
			ids[c.ID.ID] = c.ID
			list = append(list, plan.Container{
				ID: c.ID.ID, Pod: pod.ID, Name: c.Name, Created: time.Unix(0, c.CreatedAt), PodState: m.podState(pod.ID),
			})
		}
	}
	return list, ids, nil
}

func (m *Manager) podState(uid types.UID) plan.PodState {
	switch {
	case !m.config.SourcesReady():
		return plan.PodActive
	case m.config.PodStates.ShouldPodContentBeRemoved(uid):
		return plan.PodRemoved
	case m.config.PodStates.ShouldPodRuntimeBeRemoved(uid):
		return plan.PodTerminated
	}
	return plan.PodActive
}

// removeGarbage removes containers that are not needed any more, removeTerminated those of terminated pods.
func (a *attempt) removeGarbage(ctx context.Context) error    { return a.removeContainers(ctx, false) }
func (a *attempt) removeTerminated(ctx context.Context) error { return a.removeContainers(ctx, true) }

func (a *attempt) removeContainers(ctx context.Context, ofTerminated bool) error {
	dead, ids, err := a.m.deadContainers(ctx)
	if err != nil {
		return err
	}
	list, terminated := plan.Containers(dead, a.m.config.Policy.Containers, a.m.config.Clock.Now())
	if ofTerminated {
		list = terminated
	}
	logger := klog.FromContext(ctx)
	for _, c := range list {
		if missing, err := a.missing(ctx); err != nil || missing <= 0 || ctx.Err() != nil {
			return err
		}
		logger.Info("Removing container to free space", "containerID", c.ID, "podUID", c.Pod, "containerName", c.Name)
		if err := a.m.config.Containers.DeleteContainer(ctx, ids[c.ID]); err != nil {
			// It may have been removed by another client of the runtime. The next measurement shows whether it was.
			logger.Info("Failed to remove container", "containerID", c.ID, "err", err)
			continue
		}
		a.result.Containers++
	}
	return nil
}
