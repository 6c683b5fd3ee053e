package snapshot

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// Facts is what a pod's API object says, worked out once per object since it costs more than a whole quiet round.
type Facts struct {
	UID types.UID
	// Object is the API object itself; it is shared and must not be modified.
	Object   *v1.Pod
	Priority int32
	// Critical pods (static, mirror, or of a system priority) are never evicted: static pods would not come back, and the
	// others keep the node working (kubernetes issue 40573).
	Critical       bool
	MemoryRequest  Bytes
	StorageRequest Bytes
	// Volumes are the names of those volumes whose content lies on the node.
	Volumes []string
	// MemoryVolumes are the names of emptyDir volumes in memory.
	MemoryVolumes []string
	// Limits is nil when the pod has no limit on local storage.
	Limits *StorageLimits
	// PodLevelMemory is the request made for the pod as a whole, nil without one.
	PodLevelMemory *resource.Quantity
}

// StorageLimits are the limits on local storage that the agent itself has to enforce.
type StorageLimits struct {
	// EmptyDirs lists the volumes with a size limit, in the order of the pod's volumes.
	EmptyDirs []NamedLimit
	// Pod is the sum of all containers' limits, nil when not limited.
	Pod *resource.Quantity
	// Containers lists the containers and sidecars with a limit.
	Containers []NamedLimit
}

// NamedLimit is the limit of one volume or container.
type NamedLimit struct {
	Name  string
	Limit resource.Quantity
}

// NewFacts reads a pod's API object. podLevelResources says whether requests of the pod as a whole count (the feature gate of
// that name). The object must be the pod as it was admitted, and must not change afterwards.
func NewFacts(pod *v1.Pod, podLevelResources bool) *Facts {
	podLevel := podLevelResources && resourcehelper.IsPodLevelResourcesSet(pod)
	requests := requestsOf(pod, podLevel)
	f := &Facts{
		UID:            pod.UID,
		Object:         pod,
		Priority:       corev1helpers.PodPriority(pod),
		Critical:       kubetypes.IsCriticalPod(pod),
		MemoryRequest:  requestOf(requests, pod, v1.ResourceMemory),
		StorageRequest: requestOf(requests, pod, v1.ResourceEphemeralStorage),
		Volumes:        localVolumes(pod),
		MemoryVolumes:  memoryVolumes(pod),
		Limits:         storageLimits(pod),
	}
	if podLevel {
		if q, ok := pod.Spec.Resources.Requests[v1.ResourceMemory]; ok {
			f.PodLevelMemory = &q
		}
	}
	return f
}

// Grace is the pod's own termination grace period in seconds, 30 when it names none.
func (f *Facts) Grace() int64 {
	if g := f.Object.Spec.TerminationGracePeriodSeconds; g != nil {
		return *g
	}
	return v1.DefaultTerminationGracePeriodSeconds
}

func requestsOf(pod *v1.Pod, podLevel bool) v1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		SkipContainerLevelResources: podLevel,
		ExcludeOverhead:             true,
	})
}

// requestOf adds the pod's overhead only to a request that is not zero: a pod that asks for nothing stays entitled to nothing.
func requestOf(requests v1.ResourceList, pod *v1.Pod, name v1.ResourceName) Bytes {
	q, ok := requests[name]
	if !ok || q.IsZero() {
		return 0
	}
	total := q.DeepCopy()
	if overhead, ok := pod.Spec.Overhead[name]; ok {
		total.Add(overhead)
	}
	return Bytes(total.Value())
}

func localVolumes(pod *v1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.HostPath != nil || volumeutil.IsLocalEphemeralVolume(*v) {
			names = append(names, v.Name)
		}
	}
	return names
}

func memoryVolumes(pod *v1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		if e := pod.Spec.Volumes[i].EmptyDir; e != nil && e.Medium == v1.StorageMediumMemory {
			names = append(names, pod.Spec.Volumes[i].Name)
		}
	}
	return names
}

func storageLimits(pod *v1.Pod) *StorageLimits {
	var l StorageLimits
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() > 0 {
			l.EmptyDirs = append(l.EmptyDirs, NamedLimit{v.Name, *v.EmptyDir.SizeLimit})
		}
	}
	if total, ok := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]; ok {
		l.Pod = &total
	}
	l.Containers = containerLimits(pod)
	if len(l.EmptyDirs) == 0 && l.Pod == nil && len(l.Containers) == 0 {
		return nil
	}
	return &l
}

// containerLimits covers sidecars as well: they run as long as the containers do.
func containerLimits(pod *v1.Pod) []NamedLimit {
	var limits []NamedLimit
	add := func(c *v1.Container) {
		if q, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]; ok && !q.IsZero() {
			limits = append(limits, NamedLimit{c.Name, q})
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return limits
}
