package snapshot

import (
	"math"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// AnnotationPrefix is the prefix of the annotations by which pods influence their eviction.
const AnnotationPrefix = "pressure.plimsoll.dev/"

// Facts is what a decision uses of a pod's API object, as plain values. They are derived once per object, since that
// costs more than a round without pressure, and the snapshots of all rounds share them: they must not be modified.
type Facts struct {
	UID             types.UID
	Namespace, Name string
	ResourceVersion string
	// Created is the creation timestamp, by the wall clock of the API server.
	Created time.Time
	// OwnerKind is the kind of the pod's controller, empty without one.
	OwnerKind string
	Priority  int32
	QOS       v1.PodQOSClass
	// Static pods come from a file or a URL, not from the API server.
	Static bool
	// Critical pods (static, mirror, or with a system priority) are never evicted: static pods are not created again
	// elsewhere, and the others are needed for the node to work (kubernetes issue 40573).
	Critical bool
	// Overhead: the pod has an overhead (spec.overhead, of its RuntimeClass), so that its containers may run in a virtual
	// machine.
	Overhead bool
	// GracePeriodSeconds is the termination grace period, nil if the pod sets none.
	GracePeriodSeconds *int64
	// MemoryRequest and StorageRequest are the requests of the whole pod for memory and ephemeral storage, overhead
	// included.
	MemoryRequest  Bytes
	StorageRequest Bytes
	// PodLevelMemory is the pod-level memory request, nil without one.
	PodLevelMemory *Quantity
	// Containers are the containers, followed by the init containers, which include sidecars.
	Containers []ContainerFacts
	// Volumes are the names of the volumes whose content is on the node: hostPath and local ephemeral volumes.
	Volumes []string
	// MemoryVolumes are the names of memory-backed emptyDir volumes (tmpfs).
	MemoryVolumes []string
	// Limits is nil if the pod has no limit on local storage.
	Limits *StorageLimits
	// Annotations are those with AnnotationPrefix, nil without any.
	Annotations map[string]string
}

// ContainerFacts has the requests of a container; zero where it has none.
type ContainerFacts struct {
	Name                          string
	MemoryRequest, StorageRequest Quantity
}

// StorageLimits are the limits on local storage, which the agent enforces by eviction.
type StorageLimits struct {
	// EmptyDirs lists the volumes with a size limit, in the order of the pod's volumes.
	EmptyDirs []NamedLimit
	// Pod is the sum of the containers' limits, nil without one.
	Pod *Quantity
	// Containers lists the containers and sidecars with a limit.
	Containers []NamedLimit
}

// NamedLimit is the limit of one volume or container.
type NamedLimit struct {
	Name  string
	Limit Quantity
}

// Quantity is a configured amount. Messages show Text, the amount as it was configured.
type Quantity struct {
	// Amount is rounded down, so that a whole number of bytes exceeds it if and only if it exceeds the configured amount.
	Amount Bytes
	Text   string
}

func newQuantity(q resource.Quantity) Quantity {
	return Quantity{Amount: roundDown(&q), Text: q.String()}
}

// roundDown returns the largest number of bytes that does not exceed a quantity, which must not be negative.
func roundDown(q *resource.Quantity) Bytes {
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	n := q.Value() // rounded up
	if q.CmpInt64(n) < 0 {
		n--
	}
	return Bytes(n)
}

// NewFacts derives the facts of a pod, which must be the object as it was admitted. podLevelResources is the feature
// gate PodLevelResources.
func NewFacts(pod *v1.Pod, podLevelResources bool) *Facts {
	podLevel := podLevelResources && resourcehelper.IsPodLevelResourcesSet(pod)
	requests := requestsOf(pod, podLevel)
	f := &Facts{
		UID:             pod.UID,
		Namespace:       pod.Namespace,
		Name:            pod.Name,
		ResourceVersion: pod.ResourceVersion,
		Created:         WallTime(pod.CreationTimestamp.Time),
		Priority:        corev1helpers.PodPriority(pod),
		QOS:             v1qos.GetPodQOS(pod),
		Static:          kubetypes.IsStaticPod(pod),
		Critical:        kubetypes.IsCriticalPod(pod),
		Overhead:        len(pod.Spec.Overhead) > 0,
		MemoryRequest:   requestOf(requests, pod, v1.ResourceMemory),
		StorageRequest:  requestOf(requests, pod, v1.ResourceEphemeralStorage),
		Containers:      containerFacts(pod),
		Volumes:         localVolumes(pod),
		MemoryVolumes:   memoryVolumes(pod),
		Limits:          storageLimits(pod),
		Annotations:     ownAnnotations(pod),
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		f.OwnerKind = owner.Kind
	}
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		f.GracePeriodSeconds = new(*seconds)
	}
	if podLevel {
		if q, ok := pod.Spec.Resources.Requests[v1.ResourceMemory]; ok {
			f.PodLevelMemory = new(newQuantity(q))
		}
	}
	return f
}

// Reference returns the object reference for events about the pod.
func (f *Facts) Reference() *v1.ObjectReference {
	return &v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: f.Namespace, Name: f.Name, UID: f.UID, ResourceVersion: f.ResourceVersion,
	}
}

// Grace returns the termination grace period in seconds, 30 if the pod sets none.
func (f *Facts) Grace() int64 {
	if f.GracePeriodSeconds != nil {
		return *f.GracePeriodSeconds
	}
	return v1.DefaultTerminationGracePeriodSeconds
}

// Container returns the container or init container with a name, nil if there is none.
func (f *Facts) Container(name string) *ContainerFacts {
	for i := range f.Containers {
		if f.Containers[i].Name == name {
			return &f.Containers[i]
		}
	}
	return nil
}

func containerFacts(pod *v1.Pod) []ContainerFacts {
	list := make([]ContainerFacts, 0, len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			requests := containers[i].Resources.Requests
			list = append(list, ContainerFacts{
				Name:           containers[i].Name,
				MemoryRequest:  newQuantity(requests[v1.ResourceMemory]),
				StorageRequest: newQuantity(requests[v1.ResourceEphemeralStorage]),
			})
		}
	}
	return list
}

func ownAnnotations(pod *v1.Pod) (own map[string]string) {
	for key, text := range pod.Annotations {
		if strings.HasPrefix(key, AnnotationPrefix) {
			if own == nil {
				own = map[string]string{}
			}
			own[key] = text
		}
	}
	return own
}

func requestsOf(pod *v1.Pod, podLevel bool) v1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		SkipContainerLevelResources: podLevel,
		ExcludeOverhead:             true,
	})
}

// requestOf adds the pod's overhead only to a request that is not zero: a pod without a request remains without one.
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

// LimitsStorage reports whether a pod has a limit on local storage.
func LimitsStorage(pod *v1.Pod) bool { return storageLimits(pod) != nil }

func storageLimits(pod *v1.Pod) *StorageLimits {
	var l StorageLimits
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() > 0 {
			l.EmptyDirs = append(l.EmptyDirs, NamedLimit{v.Name, newQuantity(*v.EmptyDir.SizeLimit)})
		}
	}
	if total, ok := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]; ok {
		l.Pod = new(newQuantity(total))
	}
	l.Containers = containerLimits(pod)
	if len(l.EmptyDirs) == 0 && l.Pod == nil && len(l.Containers) == 0 {
		return nil
	}
	return &l
}

// containerLimits returns the limits of containers and of sidecars, which run as long as containers do.
func containerLimits(pod *v1.Pod) []NamedLimit {
	var limits []NamedLimit
	add := func(c *v1.Container) {
		if q, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]; ok && !q.IsZero() {
			limits = append(limits, NamedLimit{c.Name, newQuantity(q)})
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
