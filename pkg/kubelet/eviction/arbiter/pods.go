package arbiter

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// Labels and annotations by which Katalyst marks pods.
const (
	// QoSLevelKey is the annotation with the QoS level of a pod.
	QoSLevelKey = "katalyst.kubewharf.io/qos_level"
	// SoftNoticeKey is the annotation of pods that are given notice instead of being evicted by a request without force,
	// if its value is "true".
	SoftNoticeKey = "katalyst.kubewharf.io/pod_soft_evict_notify"
	// ReclaimedCores is the level of pods that run on what others leave, SystemCores that of pods the node needs.
	ReclaimedCores = "reclaimed_cores"
	SystemCores    = "system_cores"
)

// Exclusion says why no plugin may name a pod. Its values are labels of metrics.
type Exclusion string

// The exclusions.
const (
	NotExcluded    Exclusion = ""
	Unknown        Exclusion = "unknown_pod"
	Critical       Exclusion = "critical"
	SystemLevel    Exclusion = "system_cores"
	SkipAnnotation Exclusion = "skip_annotation"
	SkipLabel      Exclusion = "skip_label"
	SkipOwner      Exclusion = "skip_owner"
)

// Skip is which pods the configuration takes from plugins.
type Skip struct {
	AnnotationKeys, LabelKeys, OwnerKinds []string
	Levels                                Levels
}

// Levels is how the QoS level of a pod is found. The zero value is Katalyst's way, the annotation alone.
type Levels struct {
	// Label is the key of a label; LabelValues are levels by its values.
	Label       string
	LabelValues map[string]string
	// PriorityClasses are levels by the names of priority classes.
	PriorityClasses map[string]string
}

// Of returns the QoS level of a pod: the value of the annotation QoSLevelKey, without it what the configuration has for
// its label, or else for its priority class; empty if there is none.
func (l *Levels) Of(pod *v1.Pod) string {
	if level := pod.Annotations[QoSLevelKey]; level != "" {
		return level
	}
	if value, ok := pod.Labels[l.Label]; ok && l.Label != "" {
		if level := l.LabelValues[value]; level != "" {
			return level
		}
	}
	return l.PriorityClasses[pod.Spec.PriorityClassName]
}

// Exclude reports why plugins may not name the pod. It judges the object that this node has and ignores the one that
// the plugin sends (E7). Static and mirror pods are critical.
func (s *Skip) Exclude(pod *v1.Pod) Exclusion {
	has := func(set map[string]string, keys []string) bool {
		return slices.ContainsFunc(keys, func(key string) bool { _, ok := set[key]; return ok })
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	switch {
	case kubetypes.IsCriticalPod(pod):
		return Critical
	case s.Levels.Of(pod) == SystemCores:
		return SystemLevel
	case has(pod.Annotations, s.AnnotationKeys):
		return SkipAnnotation
	case has(pod.Labels, s.LabelKeys):
		return SkipLabel
	case owner != nil && slices.Contains(s.OwnerKinds, owner.Kind):
		return SkipOwner
	}
	return NotExcluded
}

// Pod is what the arbiter has to know of a pod on this node. A pod stays in the list until everything that it used is
// released.
type Pod struct {
	UID      types.UID
	Priority int32
	// GraceSeconds is the grace period of the pod itself.
	GraceSeconds int64
	// QoSLevel is the level of the pod by Levels, empty if it has none. Pods of level ReclaimedCores go before others.
	QoSLevel string
	Excluded Exclusion
	// NotifyOnly: the pod is given notice instead of being evicted by a request without force.
	NotifyOnly bool
	// Blocked: the API server is being asked to evict the pod, and did not accept that the last time.
	Blocked bool
	// InFlight: the pod is evicted and has not been released; Overdue: it is, and has not stopped in time.
	InFlight, Overdue bool
}

// podsByUID finds pods. The first of several with one UID counts.
func podsByUID(pods []Pod) map[types.UID]*Pod {
	found := make(map[types.UID]*Pod, len(pods))
	for i := range pods {
		if _, ok := found[pods[i].UID]; !ok {
			found[pods[i].UID] = &pods[i]
		}
	}
	return found
}
