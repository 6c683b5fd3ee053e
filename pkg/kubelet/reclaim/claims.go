package reclaim

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/util/parsers"
)

// claims are the names of images that pods and pulls want, with who wants them.
type claims struct {
	// full are whole names as runtimes report them, short ones without a registry.
	full, short map[string][]types.UID
}

// claims reads what active pods and pulls name at this moment. It asks nobody who could fail.
func (m *Manager) claims() claims {
	c := claims{full: map[string][]types.UID{}, short: map[string][]types.UID{}}
	for _, pod := range m.config.Active() {
		for _, name := range imagesOf(pod) {
			c.add(name, pod.UID)
		}
	}
	for _, name := range m.config.Pulling() {
		c.add(name, nobody)
	}
	return c
}

// imagesOf are the names of all images that a pod wants, as containers of any kind and as volumes.
func imagesOf(pod *v1.Pod) []string {
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

// add takes a name as a pod has it. A name that cannot be parsed is none that could be pulled, but it may be an ID.
func (c claims) add(name string, by types.UID) {
	if name == "" {
		return
	}
	c.full[name] = append(c.full[name], by)
	repository, tag, digest, err := parsers.ParseImageName(name)
	if err != nil {
		return
	}
	end := ":" + tag
	if digest != "" {
		end = "@" + digest
	}
	c.full[repository+end] = append(c.full[repository+end], by)
	// Runtimes may look for a short name in other registries than the default one.
	if path := strings.TrimPrefix(repository, "docker.io/"); path != repository && !strings.HasPrefix(name, "docker.io/") {
		path = strings.TrimPrefix(path, "library/")
		c.short[path+end] = append(c.short[path+end], by)
	}
}

// of lists who wants an image, by any of its names.
func (c claims) of(image *kubecontainer.Image) []types.UID {
	users := append(c.full[image.ID], c.full[strings.TrimPrefix(image.ID, "sha256:")]...)
	for _, names := range [][]string{image.RepoTags, image.RepoDigests} {
		for _, name := range names {
			users = append(users, c.full[name]...)
			for rest, ok := name, true; ok; {
				if _, rest, ok = strings.Cut(rest, "/"); ok {
					users = append(users, c.short[rest]...)
				}
			}
		}
	}
	return users
}
