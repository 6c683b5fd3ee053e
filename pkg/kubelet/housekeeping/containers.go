package housekeeping

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// deletorQueue limits the number of queued containers. The container garbage collector removes the others.
const deletorQueue = 50

// ContainerRemover removes containers that are not running.
type ContainerRemover interface {
	DeleteContainer(ctx context.Context, id kubecontainer.ContainerID) error
}

// ContainerDeletor removes dead containers before the next periodic garbage collection. Its methods may be called from
// any goroutine.
type ContainerDeletor struct {
	remover ContainerRemover
	keep    int
	queue   chan kubecontainer.ContainerID
}

// NewContainerDeletor returns a deletor that keeps the given number of dead containers for each container of a pod that
// may be restarted. It removes no container before Run is called.
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

// Delete queues dead containers of the pod for removal: the older ones with the name of container exitedID; the older
// ones of any name if exitedID is empty; all dead containers if all is true. It does not block.
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

// deadContainers returns the exited containers, the newest first, those created at the same time in the order of their
// IDs.
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

// sameName returns the containers in dead with the name of container id, none if the pod has no such container.
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

// PodStatuses is the status cache of the PLEG.
type PodStatuses interface {
	Get(uid types.UID) (*kubecontainer.PodStatus, error)
}

// ContentRemovable is true if all dead containers of a pod, and their logs, may be removed.
type ContentRemovable interface {
	ShouldPodContentBeRemoved(uid types.UID) bool
}

// DeadContainers removes dead containers after events.
type DeadContainers struct {
	Statuses  PodStatuses
	Lifecycle ContentRemovable
	Deletor   *ContainerDeletor
}

// Exited is called when container exitedID of the pod has exited. It removes older dead containers with the same name,
// or all dead containers of a stopped pod that was evicted or deleted.
func (d DeadContainers) Exited(ctx context.Context, uid types.UID, exitedID string) {
	status, err := d.Statuses.Get(uid)
	if err != nil {
		return
	}
	d.Deletor.Delete(ctx, status, exitedID, d.Lifecycle.ShouldPodContentBeRemoved(uid))
}

// RemoveAll removes all dead containers of a pod. It is called when the API server has the pod's final status.
func (d DeadContainers) RemoveAll(ctx context.Context, uid types.UID) {
	if status, err := d.Statuses.Get(uid); err == nil {
		d.Deletor.Delete(ctx, status, "", true)
	}
}
