// Package allocations keeps the resources that are allocated to each pod (KEP-1287) in memory, and a checkpoint of them
// on disk.
//
// In stock's allocation manager the writer of the checkpoint holds a lock while the file is written and synced, and
// every reader takes the same lock. Eviction, which lists the active pods with their allocations, and the pod workers
// would wait for the disk. Here stock's manager keeps its state in memory, and each call that changes an allocation
// writes the checkpoint before it returns, after it has released all locks that readers take.
//
// Stock's guarantees hold: the checkpoint is written before a pod is synchronized because of an admission or a resize,
// the file has stock's name and format, and a pod is admitted or resized even if the checkpoint cannot be written.
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

// Manager is an allocation.Manager whose methods for reading never wait for disk I/O. Its methods that admit a pod, or
// change an allocation, return after the checkpoint is written.
type Manager struct {
	// Manager keeps the allocations in memory.
	allocation.Manager
	// writing serializes writes of the checkpoint, so that an older allocation does not replace a newer one. Methods that
	// only read do not take it.
	writing    sync.Mutex
	checkpoint state.State
}

// Config is what a Manager is made of. All fields are required.
type Config struct {
	// Checkpoint is the state on disk. The manager starts with its content.
	Checkpoint state.State
	Status     status.Manager
	// Sync requests the synchronization of a pod after it was resized. It is called when the checkpoint is written.
	Sync func(pod *v1.Pod)
	// ActivePods returns the pods that use resources of the node.
	ActivePods func() []*v1.Pod
	PodByUID   func(uid types.UID) (*v1.Pod, bool)
	// SourcesReady is true when all sources of pods have been read. No resize is decided before.
	SourcesReady config.SourcesReady
	Recorder     record.EventRecorderLogger
}

// New returns a manager with the allocations of the checkpoint. It starts no goroutine.
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

// AddPod is allocation.Manager.AddPod. The allocation of an admitted pod is in the checkpoint when AddPod returns,
// unless the write fails.
func (m *Manager) AddPod(activePods []*v1.Pod, pod *v1.Pod) (ok bool, reason, message string) {
	if ok, reason, message = m.Manager.AddPod(activePods, pod); ok {
		m.save(pod)
	}
	return ok, reason, message
}

// SetAllocatedResources is allocation.Manager.SetAllocatedResources. If the write fails, the allocation is valid
// nevertheless, and the next write for any pod includes it.
func (m *Manager) SetAllocatedResources(pod *v1.Pod) error {
	return errors.Join(m.Manager.SetAllocatedResources(pod), m.write(pod))
}

// save writes the allocation of a pod to the checkpoint. It only logs a failure, since the pod is admitted already.
func (m *Manager) save(pod *v1.Pod) {
	if err := m.write(pod); err != nil {
		klog.Background().Error(err, "Failed to write allocation to checkpoint", "pod", klog.KObj(pod), "podUID", pod.UID)
	}
}

// write copies the current allocation of a pod to the checkpoint, and deletes from it the pods that were removed since
// the last write. As with stock, a removal alone causes no write.
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

// allocated returns the allocation of the pod, false if it has none.
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

// podWith returns a pod from whose specification the manager reads info as the allocation.
func podWith(uid types.UID, info state.PodResourceInfo) *v1.Pod {
	pod := &v1.Pod{}
	pod.UID = uid
	pod.Spec.Resources = info.PodLevelResources
	for name, resources := range info.ContainerResources {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, Resources: resources})
	}
	return pod
}
