// Package allocations keeps the resources that were allocated to each pod (KEP-1287) in memory, and a checkpoint of
// them on disk.
//
// In stock's allocation manager the writer of the checkpoint holds a lock while the file is written and synced, and
// every reader takes the same lock: eviction, which asks for the active pods with their allocations, and the pod
// workers would wait for the disk. Here stock's manager keeps its state in memory, and each change is copied to the
// checkpoint before the call that made it returns, after all locks that readers take are released.
//
// What stock guarantees holds: an admission or a resize is on disk before the pod is synchronized because of it, the
// file is stock's in name and format, and when the disk cannot be written the pod is admitted or resized all the same.
package allocations

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/allocation/state"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

// CheckpointName is the name of the checkpoint in the kubelet's root directory.
const CheckpointName = "allocated_pods_state"

// Manager is an allocation.Manager whose methods that read never wait for a disk. Methods that admit a pod, or allocate
// other resources to it, wait until the checkpoint is written.
type Manager struct {
	// Manager keeps the allocations in memory.
	allocation.Manager
	// writing is held while the checkpoint is written, so that an older allocation does not replace a newer one. No
	// method that only reads takes it.
	writing    sync.Mutex
	checkpoint state.State
}

// Config is what a Manager works with. All fields are required.
type Config struct {
	// Checkpoint is what is on disk. Its content is the state that the manager begins with.
	Checkpoint state.State
	Status     status.Manager
	// Sync has a pod synchronized after it was resized, when the new allocation is on disk.
	Sync func(pod *v1.Pod)
	// ActivePods are the pods that use resources of the node.
	ActivePods func() []*v1.Pod
	PodByUID   func(uid types.UID) (*v1.Pod, bool)
	// SourcesReady tells whether all sources of pods have been read. No resize is decided before.
	SourcesReady config.SourcesReady
	Recorder     record.EventRecorderLogger
}

// New returns a manager with the allocations of the checkpoint. Nothing is started.
func New(c Config) (*Manager, error) {
	m := &Manager{checkpoint: c.Checkpoint}
	resized := func(pod *v1.Pod) {
		m.save(pod)
		c.Sync(pod)
	}
	m.Manager = allocation.NewInMemoryManager(c.Status, resized, c.ActivePods, c.PodByUID, c.SourcesReady, c.Recorder)
	for uid, info := range c.Checkpoint.GetPodResourceInfoMap() {
		if err := m.Manager.SetAllocatedResources(podWith(uid, info)); err != nil {
			return nil, fmt.Errorf("allocation of pod %s in the checkpoint: %w", uid, err)
		}
	}
	return m, nil
}

// AddPod is allocation.Manager.AddPod. A pod that is admitted is on disk when it returns, unless the disk fails.
func (m *Manager) AddPod(activePods []*v1.Pod, pod *v1.Pod) (ok bool, reason, message string) {
	if ok, reason, message = m.Manager.AddPod(activePods, pod); ok {
		m.save(pod)
	}
	return ok, reason, message
}

// SetAllocatedResources is allocation.Manager.SetAllocatedResources. After an error the allocation holds, and is on
// disk with the next change of any pod.
func (m *Manager) SetAllocatedResources(pod *v1.Pod) error {
	return errors.Join(m.Manager.SetAllocatedResources(pod), m.write(pod))
}

// save writes a pod's allocation to the checkpoint. A failure is logged only, since the pod is admitted already.
func (m *Manager) save(pod *v1.Pod) {
	if err := m.write(pod); err != nil {
		klog.Background().Error(err, "Allocation was not saved", "pod", klog.KObj(pod), "podUID", pod.UID)
	}
}

// write copies the present allocation of a pod to the checkpoint. Pods that were removed since the last write leave it
// at the same time: a removal alone is not worth a write, as with stock.
func (m *Manager) write(pod *v1.Pod) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	for uid := range m.checkpoint.GetPodResourceInfoMap() {
		if _, known := m.GetPodLevelResourceAllocation(uid); !known {
			if err := m.checkpoint.RemovePod(uid); err != nil {
				return err
			}
		}
	}
	info, known := m.allocated(pod)
	if !known {
		return nil
	}
	return m.checkpoint.SetPodResourceInfo(klog.Background(), pod.UID, info)
}

// allocated returns what the pod was allocated, false if it has no allocation.
func (m *Manager) allocated(pod *v1.Pod) (state.PodResourceInfo, bool) {
	podLevel, known := m.GetPodLevelResourceAllocation(pod.UID)
	info := state.PodResourceInfo{PodLevelResources: podLevel, ContainerResources: map[string]v1.ResourceRequirements{}}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if resources, found := m.GetContainerResourceAllocation(pod.UID, c.Name); found {
			info.ContainerResources[c.Name] = resources
		}
	}
	return info, known
}

// podWith returns a pod whose allocation, as the manager takes it from a specification, is info.
func podWith(uid types.UID, info state.PodResourceInfo) *v1.Pod {
	pod := &v1.Pod{}
	pod.UID = uid
	pod.Spec.Resources = info.PodLevelResources
	for name, resources := range info.ContainerResources {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, Resources: resources})
	}
	return pod
}
