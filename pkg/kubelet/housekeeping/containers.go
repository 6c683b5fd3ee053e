package housekeeping

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// deletorQueue bounds how many containers wait to be removed. What does not fit is left to the container garbage
// collector.
const deletorQueue = 50

// ContainerRemover removes containers that do not run.
type ContainerRemover interface {
	DeleteContainer(ctx context.Context, id kubecontainer.ContainerID) error
}

// ContainerDeletor removes dead containers as soon as they are not needed any more, so that they need not wait for the
// periodic garbage collection. The methods may be called from any goroutine.
type ContainerDeletor struct {
	remover ContainerRemover
	keep    int
	queue   chan kubecontainer.ContainerID
}

// NewContainerDeletor keeps the given number of dead containers for each container of a pod that may still restart.
// Nothing is removed until Run is called.
func NewContainerDeletor(remover ContainerRemover, keep int) *ContainerDeletor {
	return &ContainerDeletor{remover: remover, keep: keep, queue: make(chan kubecontainer.ContainerID, deletorQueue)}
}

// Run removes containers, one at a time, until ctx ends.
func (d *ContainerDeletor) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-d.queue:
			if err := d.remover.DeleteContainer(ctx, id); err != nil {
				klog.FromContext(ctx).Info("DeleteContainer returned error", "containerID", id, "err", err)
			}
		}
	}
}

// Delete queues the older dead containers of the pod for removal: those with the name of the container exitedID if that
// is not empty, else those of all names together; all dead containers if all is set. It does not wait.
func (d *ContainerDeletor) Delete(ctx context.Context, status *kubecontainer.PodStatus, exitedID string, all bool) {
	dead := deadContainers(status)
	keep := d.keep
	switch {
	case all:
		keep = 0
	case exitedID != "":
		if dead = sameName(ctx, status, dead, exitedID); len(dead) == 0 {
			return
		}
	}
	for i, c := range dead {
		if i < keep {
			continue
		}
		select {
		case d.queue <- c.ID:
		default:
			klog.FromContext(ctx).Info("Failed to issue the request to remove container", "containerID", c.ID)
		}
	}
}

// deadContainers returns the containers that have ended, the newest first; of two created at once that with the smaller
// ID first.
func deadContainers(status *kubecontainer.PodStatus) []*kubecontainer.Status {
	var dead []*kubecontainer.Status
	for _, c := range status.ContainerStatuses {
		if c.State == kubecontainer.ContainerStateExited {
			dead = append(dead, c)
		}
	}
	slices.SortFunc(dead, func(a, b *kubecontainer.Status) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID.ID, b.ID.ID))
	})
	return dead
}

// sameName returns those of dead that have the name of container id, none if the pod has no such container.
func sameName(
	ctx context.Context, status *kubecontainer.PodStatus, dead []*kubecontainer.Status, id string,
) []*kubecontainer.Status {
	i := slices.IndexFunc(status.ContainerStatuses, func(c *kubecontainer.Status) bool { return c.ID.ID == id })
	if i < 0 {
		klog.FromContext(ctx).Info("Container not found in pod's containers", "containerID", id)
		return nil
	}
	name := status.ContainerStatuses[i].Name
	return slices.DeleteFunc(dead, func(c *kubecontainer.Status) bool { return c.Name != name })
}

// PodStatuses is the cache that the PLEG fills.
type PodStatuses interface {
	Get(uid types.UID) (*kubecontainer.PodStatus, error)
}

// ContentRemovable says whether everything of a pod may be removed, dead containers and their logs included.
type ContentRemovable interface {
	ShouldPodContentBeRemoved(uid types.UID) bool
}

// DeadContainers reacts to the end of containers.
type DeadContainers struct {
	Statuses  PodStatuses
	Lifecycle ContentRemovable
	Deletor   *ContainerDeletor
}

// Exited is called when container exitedID of the pod has ended; it removes the dead ones before it, or all of a pod
// that is evicted, or deleted and stopped.
func (d DeadContainers) Exited(ctx context.Context, uid types.UID, exitedID string) {
	status, err := d.Statuses.Get(uid)
	if err != nil {
		return
	}
	d.Deletor.Delete(ctx, status, exitedID, d.Lifecycle.ShouldPodContentBeRemoved(uid))
}

// RemoveAll removes all dead containers of a pod whose final status the API server has.
func (d DeadContainers) RemoveAll(ctx context.Context, uid types.UID) {
	if status, err := d.Statuses.Get(uid); err == nil {
		d.Deletor.Delete(ctx, status, "", true)
	}
}
