package reclaim

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/util/parsers"
)

// references are the names of images that pods and pulls refer to, with the UIDs of the pods.
type references struct {
	// byName has full names as runtimes report them, byShortName names without a registry.
	byName, byShortName map[string][]types.UID
}

// references returns what active pods and pulls refer to at this moment. It cannot fail.
func (m *Manager) references() references {
	c := references{byName: map[string][]types.UID{}, byShortName: map[string][]types.UID{}}
	for _, pod := range m.config.Active() {
		for _, name := range imageNames(pod) {
			c.add(name, pod.UID)
		}
	}
	for _, name := range m.config.Pulling() {
		c.add(name, noPod)
	}
	return c
}

// imageNames returns the names of all images in a pod's spec, of containers of any kind and of volumes.
func imageNames(pod *v1.Pod) []string {
	var names []string
	podutil.VisitContainers(&pod.Spec, podutil.AllContainers, func(c *v1.Container, _ podutil.ContainerType) bool {
		names = append(names, c.Image)
		return true
	})
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			names = append(names, image.Reference)
		}
	}
	return names
}

// add adds a name as it stands in a pod's spec. A name that cannot be parsed cannot be pulled, but it may be an ID.
func (c references) add(name string, by types.UID) {
	if name == "" {
		return
	}
	c.byName[name] = append(c.byName[name], by)
	repository, tag, digest, err := parsers.ParseImageName(name)
	if err != nil {
		return
	}
	end := ":" + tag
	if digest != "" {
		end = "@" + digest
	}
	c.byName[repository+end] = append(c.byName[repository+end], by)
	// Runtimes may resolve a short name to another registry than the default one.
	if path := strings.TrimPrefix(repository, "docker.io/"); path != repository && !strings.HasPrefix(name, "docker.io/") {
		path = strings.TrimPrefix(path, "library/")
		c.byShortName[path+end] = append(c.byShortName[path+end], by)
	}
}

// users returns the pods that refer to an image by any of its names.
func (c references) users(image *kubecontainer.Image) []types.UID {
	users := append(c.byName[image.ID], c.byName[strings.TrimPrefix(image.ID, "sha256:")]...)
	for _, names := range [][]string{image.RepoTags, image.RepoDigests} {
		for _, name := range names {
			users = append(users, c.byName[name]...)
			for rest, ok := name, true; ok; {
				if _, rest, ok = strings.Cut(rest, "/"); ok {
					users = append(users, c.byShortName[rest]...)
				}
			}
		}
	}
	return users
}
