package policy

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Annotations of the event of an eviction, as in stock.
const (
	OffendingContainersKey      = "offending_containers"
	OffendingContainersUsageKey = "offending_containers_usage"
	OffendingPodKey             = "offending_pod"
	OffendingPodUsageKey        = "offending_pod_usage"
	StarvedResourceKey          = "starved_resource"
)

// overRequest returns a sentence about a container or a pod whose usage exceeds its request; kind is "Container" or
// "Pod".
func overRequest(kind, name, usage, request string, resourceName v1.ResourceName) string {
	return kind + " " + name + " was using " + usage + ", request is " + request + ", has larger consumption of " +
		string(resourceName) + ". "
}

// evictionMessage returns the message and the annotations of an eviction, from the observation of the threshold that
// caused it. If nothing is known of what the pod uses, the message has no sentence about that, and there are no
// annotations.
func evictionMessage(t *Threshold, o snapshot.Observation, pod *snapshot.Pod) (string, map[string]string) {
	resourceName := t.Signal.Resource()
	text := "The node was low on resource: " + string(resourceName) + ". Threshold quantity: " +
		t.Quantity(o.Capacity).String() + ", available: " +
		resource.NewQuantity(o.Available, t.Signal.Format()).String() + ". "
	annotations := map[string]string{}
	memory, known := pod.MemoryAmount()
	if pod.Usage == nil && !known {
		return text, annotations
	}
	if q := pod.PodLevelMemory; q != nil && resourceName == v1.ResourceMemory && known {
		usage := formatBytes(memory)
		text += overRequest("Pod", pod.Name, usage, q.Text, resourceName)
		annotations[OffendingPodKey], annotations[OffendingPodUsageKey] = pod.Name, usage
	}
	var names, usages []string
	containers := containersOf(pod, resourceName)
	for i := range containers {
		c := &containers[i]
		amount, ok := containerUsage(c, resourceName)
		request, found := containerRequest(pod.Facts, c.Name, resourceName)
		if !ok || !found || amount <= request.Amount {
			continue
		}
		usage := formatBytes(amount)
		text += overRequest("Container", c.Name, usage, request.Text, resourceName)
		names, usages = append(names, c.Name), append(usages, usage)
	}
	annotations[OffendingContainersKey] = strings.Join(names, ",")
	annotations[OffendingContainersUsageKey] = strings.Join(usages, ",")
	annotations[StarvedResourceKey] = string(resourceName)
	return text, annotations
}

// containersOf returns the usage of the containers of a pod. The memory of a container that is the only one is that of
// the pod by its cgroup, if that was read: the stats may be from before it used up memory, or may not have it yet.
func containersOf(pod *snapshot.Pod, resourceName v1.ResourceName) []snapshot.ContainerUsage {
	var stats []snapshot.ContainerUsage
	if pod.Usage != nil {
		stats = pod.Usage.Containers
	}
	// An ephemeral container may run, and the pod's own may not.
	only := len(pod.Containers) == 1 && (pod.Usage == nil || len(stats) == 1 && stats[0].Name == pod.Containers[0].Name)
	if resourceName != v1.ResourceMemory || !only || pod.Cgroup == nil || !pod.Cgroup.WorkingSet.Known {
		return stats
	}
	return []snapshot.ContainerUsage{{Name: pod.Containers[0].Name, Memory: pod.Cgroup.WorkingSet.Amount}}
}

// containerUsage returns the usage of a container. It is known for memory and ephemeral storage only.
func containerUsage(c *snapshot.ContainerUsage, resourceName v1.ResourceName) (usage snapshot.Bytes, known bool) {
	switch resourceName {
	case v1.ResourceMemory:
		return c.Memory, c.Memory >= 0
	case v1.ResourceEphemeralStorage:
		return containerDisk(c), c.WritableLayer.Bytes >= 0 && c.Logs.Bytes >= 0
	}
	return 0, false
}

// containerRequest returns the request of a container or an init container. Ephemeral containers are left out: they
// cannot have requests, so that any usage would exceed them.
func containerRequest(pod *snapshot.Facts, name string, resourceName v1.ResourceName) (snapshot.Quantity, bool) {
	c := pod.Container(name)
	switch {
	case c == nil:
		return snapshot.Quantity{}, false
	case resourceName == v1.ResourceMemory:
		return c.MemoryRequest, true
	default:
		return c.StorageRequest, true
	}
}

// formatBytes formats an amount as stock does in messages.
func formatBytes(n snapshot.Bytes) string {
	return resource.NewQuantity(int64(n), resource.BinarySI).String()
}
