package policy

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

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

// overRequest is a sentence about somebody that uses more than was asked for; who is "Container" or "Pod".
func overRequest(who, name, usage, request string, what v1.ResourceName) string {
	return fmt.Sprintf("%s %s was using %s, request is %s, has larger consumption of %v. ", who, name, usage, request, what)
}

// explain makes the message and the annotations of an eviction. The figures are those of the threshold that caused it. A pod
// without stats has nothing to be said of, not even in the annotations.
func explain(t *Threshold, o snapshot.Observation, pod *snapshot.Pod) (string, map[string]string) {
	starved := t.Signal.Resource()
	var text strings.Builder
	fmt.Fprintf(&text, "The node was low on resource: %v. ", starved)
	fmt.Fprintf(&text, "Threshold quantity: %v, available: %v. ", t.Quantity(o.Capacity), resource.NewQuantity(o.Available, t.Signal.Format()))
	notes := map[string]string{}
	if pod.Stats == nil {
		return text.String(), notes
	}
	if q := pod.PodLevelMemory; q != nil && starved == v1.ResourceMemory && pod.Stats.Memory != nil {
		usage := bytesOf(pod.Stats.Memory.WorkingSetBytes)
		text.WriteString(overRequest("Pod", pod.Name, printed(usage), q.Text, starved))
		notes[OffendingPodKey], notes[OffendingPodUsageKey] = pod.Name, printed(usage)
	}
	var names, usages []string
	for i := range pod.Stats.Containers {
		stats := &pod.Stats.Containers[i]
		usage, ok := containerUsage(stats, starved)
		request, found := containerRequest(pod.Facts, stats.Name, starved)
		if !ok || !found || usage <= request.Amount {
			continue
		}
		text.WriteString(overRequest("Container", stats.Name, printed(usage), request.Text, starved))
		names, usages = append(names, stats.Name), append(usages, printed(usage))
	}
	notes[OffendingContainersKey] = strings.Join(names, ",")
	notes[OffendingContainersUsageKey] = strings.Join(usages, ",")
	notes[StarvedResourceKey] = string(starved)
	return text.String(), notes
}

// containerUsage is known for memory and for disk space; nothing is said of containers for other resources.
func containerUsage(c *statsapi.ContainerStats, what v1.ResourceName) (snapshot.Bytes, bool) {
	switch what {
	case v1.ResourceMemory:
		if c.Memory != nil && c.Memory.WorkingSetBytes != nil {
			return bytesOf(c.Memory.WorkingSetBytes), true
		}
	case v1.ResourceEphemeralStorage:
		if c.Rootfs != nil && c.Rootfs.UsedBytes != nil && c.Logs != nil && c.Logs.UsedBytes != nil {
			sum := *c.Rootfs.UsedBytes + *c.Logs.UsedBytes
			return bytesOf(&sum), true
		}
	}
	return 0, false
}

// containerRequest looks among containers and init containers. Ephemeral containers cannot ask for anything and would always
// be to blame.
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

func bytesOf(n *uint64) snapshot.Bytes {
	if n == nil {
		return 0
	}
	return snapshot.Bytes(*n)
}

// printed is how stock prints an amount in a message.
func printed(n snapshot.Bytes) string {
	return resource.NewQuantity(int64(n), resource.BinarySI).String()
}
