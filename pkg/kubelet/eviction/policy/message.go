package policy

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Annotations of the event of an eviction. They are part of the interface of the kubelet.
const (
	OffendingContainersKey      = "offending_containers"
	OffendingContainersUsageKey = "offending_containers_usage"
	OffendingPodKey             = "offending_pod"
	OffendingPodUsageKey        = "offending_pod_usage"
	StarvedResourceKey          = "starved_resource"
)

// overRequest is a sentence about a container or a pod that uses more than it requests; who is "Container" or "Pod".
func overRequest(who, name, usage, request string, what v1.ResourceName) string {
	return who + " " + name + " was using " + usage + ", request is " + request + ", has larger consumption of " +
		string(what) + ". "
}

// explain makes the message and the annotations of an eviction from the observation of the threshold that caused it. Of
// a pod without stats nothing is said, not even in the annotations.
func explain(t *Threshold, o snapshot.Observation, pod *snapshot.Pod) (string, map[string]string) {
	starved := t.Signal.Resource()
	text := "The node was low on resource: " + string(starved) + ". Threshold quantity: " +
		t.Quantity(o.Capacity).String() + ", available: " +
		resource.NewQuantity(o.Available, t.Signal.Format()).String() + ". "
	notes := map[string]string{}
	used := pod.Usage
	if used == nil {
		return text, notes
	}
	if q := pod.PodLevelMemory; q != nil && starved == v1.ResourceMemory && used.Memory >= 0 {
		usage := printed(used.Memory)
		text += overRequest("Pod", pod.Name, usage, q.Text, starved)
		notes[OffendingPodKey], notes[OffendingPodUsageKey] = pod.Name, usage
	}
	var names, usages []string
	for i := range used.Containers {
		c := &used.Containers[i]
		amount, ok := containerUsage(c, starved)
		request, found := containerRequest(pod.Facts, c.Name, starved)
		if !ok || !found || amount <= request.Amount {
			continue
		}
		usage := printed(amount)
		text += overRequest("Container", c.Name, usage, request.Text, starved)
		names, usages = append(names, c.Name), append(usages, usage)
	}
	notes[OffendingContainersKey] = strings.Join(names, ",")
	notes[OffendingContainersUsageKey] = strings.Join(usages, ",")
	notes[StarvedResourceKey] = string(starved)
	return text, notes
}

// containerUsage is known for memory and for disk space; nothing is said of containers for other resources.
func containerUsage(c *snapshot.ContainerUsage, what v1.ResourceName) (usage snapshot.Bytes, known bool) {
	switch what {
	case v1.ResourceMemory:
		return c.Memory, c.Memory >= 0
	case v1.ResourceEphemeralStorage:
		return containerDisk(c), c.WritableLayer.Bytes >= 0 && c.Logs.Bytes >= 0
	}
	return 0, false
}

// containerRequest looks among containers and init containers. Ephemeral containers cannot ask for anything and would
// always be to blame.
func containerRequest(pod *snapshot.Facts, name string, what v1.ResourceName) (snapshot.Quantity, bool) {
	c := pod.Container(name)
	switch {
	case c == nil:
		return snapshot.Quantity{}, false
	case what == v1.ResourceMemory:
		return c.MemoryRequest, true
	default:
		return c.StorageRequest, true
	}
}

// printed is how stock prints an amount in a message.
func printed(n snapshot.Bytes) string {
	return resource.NewQuantity(int64(n), resource.BinarySI).String()
}
