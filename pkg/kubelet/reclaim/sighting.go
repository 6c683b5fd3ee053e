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
)

// nobody is the user of an image that is not held by a certain pod.
const nobody types.UID = ""

// sighting is what images there were at one instant, and who used them. It is immutable.
type sighting struct {
	at     time.Time
	images []kubecontainer.Image
	// held are the images that containers have, by their ID.
	held map[string][]holder
	// claimed are the images that pods and pulls name, and those that containers have as volumes.
	claimed claims
}

// holder is a container that has an image.
type holder struct {
	pod types.UID
	// handler is the runtime handler of the image, empty when it is not known or does not matter.
	handler string
}

// sight looks who uses which image. Any error means that it is not known.
func (m *Manager) sight(ctx context.Context) (*sighting, error) {
	s := &sighting{at: m.config.Clock.Now(), held: map[string][]holder{}}
	var err error
	if s.images, err = m.config.Images.ListImages(ctx); err != nil {
		return nil, err
	}
	pods, err := m.config.Containers.GetPods(ctx, true)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			h := holder{pod: pod.ID}
			if m.config.Features.RuntimeClassInImageCRI {
				h.handler = c.ImageRuntimeHandler
			}
			s.held[c.ImageID] = append(s.held[c.ImageID], h)
		}
	}
	volumes, err := m.volumes(ctx, pods)
	if err != nil {
		return nil, err
	}
	// The pods come last: one that enters now finds its image in the list, or pulls it.
	s.claimed = m.claims()
	for pod, names := range volumes {
		for _, name := range names {
			s.claimed.add(name, pod)
		}
	}
	return s, nil
}

// volumes are the images that containers have as volumes, by ID or by digest. A container that is gone meanwhile has
// none.
func (m *Manager) volumes(ctx context.Context, pods []*kubecontainer.Pod) (map[types.UID][]string, error) {
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

// usersOf lists the pods that use an image, each once, in no particular order. A pull that is under way counts as
// nobody.
func (s *sighting) usersOf(image *kubecontainer.Image) []types.UID {
	var users []types.UID
	for _, h := range s.held[image.ID] {
		if h.handler == "" || image.Spec.RuntimeHandler == "" || h.handler == image.Spec.RuntimeHandler {
			users = append(users, h.pod)
		}
	}
	users = append(users, s.claimed.of(image)...)
	slices.Sort(users)
	return slices.Compact(users)
}
