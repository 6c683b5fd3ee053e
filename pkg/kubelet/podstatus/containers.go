package podstatus

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// setContainerStatuses sets the three lists of container statuses: init containers in the order of the specification,
// in which they run, the others sorted by name.
func (g *generation) setContainerStatuses(out *v1.PodStatus) {
	shared := converter{
		generation:     g,
		runtimeRecords: recordsByName(g.Runtime),
		imageVolumes:   g.imageVolumes(),
		podRestarting: g.Features.RestartAllContainersOnContainerExits &&
			kubecontainer.ShouldAllContainersRestart(g.Pod, g.Runtime, &g.Previous),
	}
	out.ContainerStatuses = shared.list(g.Pod.Spec.Containers, g.Previous.ContainerStatuses)
	sortByName(out.ContainerStatuses)

	initContainers := shared
	initContainers.init = true
	out.InitContainerStatuses = initContainers.list(g.Pod.Spec.InitContainers, g.Previous.InitContainerStatuses)

	out.EphemeralContainerStatuses = shared.list(ephemeralContainers(g.Pod), g.Previous.EphemeralContainerStatuses)
	sortByName(out.EphemeralContainerStatuses)
}

// converter computes the statuses of the containers of one list.
type converter struct {
	*generation
	runtimeRecords map[string]records
	imageVolumes   sets.Set[string]
	// podRestarting is true while all containers are being restarted in place.
	podRestarting bool
	// init is true for the list of init containers.
	init bool
}

// list never returns nil.
func (c *converter) list(containers []v1.Container, previous []v1.ContainerStatus) []v1.ContainerStatus {
	statuses := make([]v1.ContainerStatus, 0, len(containers))
	for i := range containers {
		statuses = append(statuses, c.one(&containers[i], findByName(previous, containers[i].Name)))
	}
	return statuses
}

// one computes the status of one container. previous is nil if it had none.
func (c *converter) one(spec *v1.Container, previous *v1.ContainerStatus) v1.ContainerStatus {
	seen := c.runtimeRecords[spec.Name]
	var s v1.ContainerStatus
	if seen.newest == nil {
		s = c.absent(spec, previous)
	} else {
		s = c.present(seen, spec, previous)
	}
	if c.init && c.initSucceeded(spec, &s) {
		return s
	}
	c.explainWaiting(spec, &s)
	return s
}

// records are the two latest containers with the same name; previous is the source of the last termination.
type records struct {
	newest, previous *kubecontainer.Status
}

func recordsByName(runtime *kubecontainer.PodStatus) map[string]records {
	latestFirst := slices.Clone(runtime.ContainerStatuses)
	slices.SortStableFunc(latestFirst, func(a, b *kubecontainer.Status) int { return b.CreatedAt.Compare(a.CreatedAt) })
	byName := make(map[string]records, len(latestFirst))
	for _, record := range latestFirst {
		r := byName[record.Name]
		switch {
		case r.newest == nil:
			r.newest = record
		case r.previous == nil:
			r.previous = record
		}
		byName[record.Name] = r
	}
	return byName
}

func ephemeralContainers(pod *v1.Pod) []v1.Container {
	containers := make([]v1.Container, 0, len(pod.Spec.EphemeralContainers))
	for i := range pod.Spec.EphemeralContainers {
		containers = append(containers, v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return containers
}

func findByName(statuses []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

func sortByName(statuses []v1.ContainerStatus) {
	slices.SortFunc(statuses, func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
}
