package reclaim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// maxUsageAge is the greatest age of an observation by which pods are ranked.
const maxUsageAge = 30 * time.Second

// noPod stands for a user of an image that is not a pod.
const noPod types.UID = ""

// imageUsage is one observation of the node's images and their users. It is immutable.
type imageUsage struct {
	at     time.Time
	images []kubecontainer.Image
	// byImageID are the containers, by the ID of their image.
	byImageID map[string][]imageUser
	// references are the images that pods and pulls refer to, and those that containers have as volumes.
	references references
}

// imageUser is a container that has an image.
type imageUser struct {
	pod types.UID
	// handler is the runtime handler of the image, empty if it is unknown or images are not distinguished by handler.
	handler string
}

// readUsage observes the usage of images. After any error it is unknown.
func (m *Manager) readUsage(ctx context.Context) (*imageUsage, error) {
	u := &imageUsage{at: m.config.Clock.Now(), byImageID: map[string][]imageUser{}}
	var err error
	if u.images, err = m.config.Images.ListImages(ctx); err != nil {
		return nil, err
	}
	pods, err := m.config.Containers.GetPods(ctx, true)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			h := imageUser{pod: pod.ID}
			if m.config.Features.RuntimeClassInImageCRI {
				h.handler = c.ImageRuntimeHandler
			}
			u.byImageID[c.ImageID] = append(u.byImageID[c.ImageID], h)
		}
	}
	volumes, err := m.volumeImages(ctx, pods)
	if err != nil {
		return nil, err
	}
	// The pods are read last: the image of a pod that is added now is in the list, or will be pulled.
	u.references = m.references()
	for pod, names := range volumes {
		for _, name := range names {
			u.references.add(name, pod)
		}
	}
	return u, nil
}

// volumeImages returns the images that containers have as volumes, by ID or by digest. It skips containers that were
// removed meanwhile.
func (m *Manager) volumeImages(ctx context.Context, pods []*kubecontainer.Pod) (map[types.UID][]string, error) {
	names := map[types.UID][]string{}
	if !m.config.Features.ImageVolume {
		return names, nil
	}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			st, err := m.config.Containers.GetContainerStatus(ctx, pod.ID, c.ID)
			if status.Code(err) == codes.NotFound {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("get container status: %w", err)
			}
			for i := range st.Mounts {
				if image := st.Mounts[i].Image; image != nil {
					names[pod.ID] = append(names[pod.ID], image.Image)
				}
			}
		}
	}
	return names, nil
}

// usersOf returns the pods that use an image, each once. A pull that is under way counts as noPod.
func (u *imageUsage) usersOf(image *kubecontainer.Image) []types.UID {
	var users []types.UID
	for _, h := range u.byImageID[image.ID] {
		if h.handler == "" || image.Spec.RuntimeHandler == "" || h.handler == image.Spec.RuntimeHandler {
			users = append(users, h.pod)
		}
	}
	users = append(users, u.references.users(image)...)
	slices.Sort(users)
	return slices.Compact(users)
}

// PodImages returns for each pod the size of the images that only this pod uses, in bytes: they could be removed after
// an eviction of the pod. Pinned images and those that are being pulled do not count. The result is at most 30 seconds
// old.
func (m *Manager) PodImages(ctx context.Context) (map[types.UID]snapshot.Bytes, error) {
	u, err := m.recentUsage(ctx)
	if err != nil {
		return nil, err
	}
	pods := map[types.UID]snapshot.Bytes{}
	for i := range u.images {
		image := &u.images[i]
		users := u.usersOf(image)
		for _, uid := range users {
			if uid == noPod {
				continue
			}
			removable := snapshot.Bytes(0)
			if len(users) == 1 && !image.Pinned {
				removable = snapshot.Bytes(max(0, image.Size))
			}
			pods[uid] += removable
		}
	}
	return pods, nil
}

// recentUsage returns an observation that is younger than maxUsageAge.
func (m *Manager) recentUsage(ctx context.Context) (*imageUsage, error) {
	m.mu.Lock()
	u := m.usage
	m.mu.Unlock()
	if u != nil && m.config.Clock.Since(u.at) < maxUsageAge {
		return u, nil
	}
	u, err := m.readUsage(ctx)
	if err != nil {
		return nil, err
	}
	m.updateRecords(u)
	return u, nil
}
