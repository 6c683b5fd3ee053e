package reclaim

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
)

// dead lists the containers that have ended, and how the runtime manager names them. Those in an unknown state may be
// running, and those that were made and not started are about to be; neither is listed.
func (m *Manager) dead(ctx context.Context) ([]plan.Container, map[string]kubecontainer.ContainerID, error) {
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
				ID: c.ID.ID, Pod: pod.ID, Name: c.Name, Created: time.Unix(0, c.CreatedAt), Fate: m.fate(pod.ID),
			})
		}
	}
	return list, ids, nil
}

func (m *Manager) fate(uid types.UID) plan.Fate {
	switch {
	case !m.config.SourcesReady():
		return plan.Lives
	case m.config.Fates.ShouldPodContentBeRemoved(uid):
		return plan.Gone
	case m.config.Fates.ShouldPodRuntimeBeRemoved(uid):
		return plan.Ended
	}
	return plan.Lives
}

// garbage removes containers that nobody has a use for, ended those of pods that have ended.
func (a *attempt) garbage(ctx context.Context) error { return a.containers(ctx, false) }
func (a *attempt) ended(ctx context.Context) error   { return a.containers(ctx, true) }

func (a *attempt) containers(ctx context.Context, ofEnded bool) error {
	dead, ids, err := a.m.dead(ctx)
	if err != nil {
		return err
	}
	list, ended := plan.Containers(dead, a.m.config.Policy.Containers, a.m.config.Clock.Now())
	if ofEnded {
		list = ended
	}
	logger := klog.FromContext(ctx)
	for _, c := range list {
		if missing, err := a.missing(ctx); err != nil || missing <= 0 || ctx.Err() != nil {
			return err
		}
		logger.Info("Removing container to free space", "containerID", c.ID, "podUID", c.Pod, "containerName", c.Name)
		if err := a.m.config.Containers.DeleteContainer(ctx, ids[c.ID]); err != nil {
			// Somebody else may have removed it; what it holds shows in what is still missing.
			logger.Info("Failed to remove container", "containerID", c.ID, "err", err)
			continue
		}
		a.got.Containers++
	}
	return nil
}
