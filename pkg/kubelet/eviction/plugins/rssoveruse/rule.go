package rssoveruse

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
)

// Name is the name of the plugin, which is Katalyst's.
const Name = v1alpha1.RSSOverusePlugin

// EnhancementKey is the annotation with a JSON object of texts, in which OverrideKey is the ratio of the pod.
const (
	EnhancementKey = "katalyst.kubewharf.io/memory_enhancement"
	OverrideKey    = "rss_overuse_threshold"
)

// maxRatio is the greatest ratio that a pod may set.
const maxRatio = 1000

// Settings are those of the plugin.
type Settings struct {
	// Ratio is how many times its request the resident set of a pod may be.
	Ratio  rule.Millionths
	Levels arbiter.Levels
}

// Facts are what the rule decides on.
type Facts struct {
	Pods []*v1.Pod
	// Resident has the resident sets of pods in bytes. A pod that is missing is unknown.
	Resident map[types.UID]int64
}

// Decide returns the pods whose resident set is too great. It has no state: a pod is a candidate as long as it is.
func Decide(f *Facts, s *Settings) rule.Finding {
	var found rule.Finding
	for _, pod := range f.Pods {
		if rule.LevelOf(pod, &s.Levels) == rule.Dedicated {
			continue
		}
		requested, ok := request(pod)
		if !ok {
			continue
		}
		ratio, err := ratioOf(pod, s.Ratio)
		if err != nil {
			found.Notes = append(found.Notes, rule.Note{Pod: pod.UID, Event: true, Text: fmt.Sprintf(
				"The pod is not evicted for its resident set: %s of the annotation %s %v", OverrideKey, EnhancementKey, err)})
			continue
		}
		if resident, known := f.Resident[pod.UID]; known && rule.Exceeds(resident, ratio, requested) {
			found.Pods = append(found.Pods, arbiter.PodDemand{UID: pod.UID, Reason: fmt.Sprintf(
				"resident set %s is more than %s times the requested memory %s", rule.Mebibytes(resident), ratio,
				rule.Mebibytes(requested))})
		}
	}
	return found
}

// request returns the memory that the pod requests, in bytes, overhead and sidecars included, and false if one of its
// containers requests none.
func request(pod *v1.Pod) (int64, bool) {
	podLevel := false
	if r := pod.Spec.Resources; r != nil {
		_, podLevel = r.Requests[v1.ResourceMemory]
	}
	if !podLevel && withoutRequest(pod) {
		return 0, false
	}
	total := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	bytes := total.Memory().Value()
	return bytes, bytes > 0
}

// withoutRequest reports whether a container that runs as long as the pod requests no memory.
func withoutRequest(pod *v1.Pod) bool {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Resources.Requests.Memory().IsZero() {
			return true
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		if sidecar && c.Resources.Requests.Memory().IsZero() {
			return true
		}
	}
	return false
}

// ratioOf returns the ratio of a pod: that of its annotation, or else the default.
func ratioOf(pod *v1.Pod, byDefault rule.Millionths) (rule.Millionths, error) {
	text, ok := pod.Annotations[EnhancementKey]
	if !ok || text == "" {
		return byDefault, nil
	}
	var enhancement map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &enhancement); err != nil {
		return 0, fmt.Errorf("cannot be read: must be a JSON object")
	}
	raw, ok := enhancement[OverrideKey]
	if !ok {
		return byDefault, nil
	}
	var ratio string
	if err := json.Unmarshal(raw, &ratio); err != nil {
		ratio = string(raw)
	}
	n, err := strconv.ParseFloat(ratio, 64)
	if err != nil || math.IsNaN(n) || n <= 0 || n > maxRatio {
		return 0, fmt.Errorf("is %.40q: must be a number above 0 and up to %d", ratio, maxRatio)
	}
	return rule.Millionths(math.Round(n * 1e6)), nil
}
