package agentlife

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/status"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// statuses is the status manager without the API server.
type statuses struct {
	mu sync.Mutex
	of map[types.UID]v1.PodStatus
}

func (s *statuses) set(uid types.UID, status v1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[uid] = status
}

func (s *statuses) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status, ok := s.of[uid]
	return status, ok
}

func (s *statuses) SetPodStatus(_ klog.Logger, pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool) {
	s.set(pod.UID, status)
	return status, true
}

func (s *statuses) RemoveOrphanedStatuses(_ klog.Logger, podUIDs map[types.UID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.of {
		if !podUIDs[uid] {
			delete(s.of, uid)
		}
	}
}

// noStatuses is a status manager whose methods panic. The loop does not call it, since there are no probes.
type noStatuses struct{ status.Manager }

// noAllocations is an allocation manager without allocated resources.
type noAllocations struct{ allocation.Manager }

func (noAllocations) RemovePod(types.UID) {}
func (noAllocations) GetContainerResourceAllocation(types.UID, string) (v1.ResourceRequirements, bool) {
	return v1.ResourceRequirements{}, false
}

// noPressure has neither pressure nor preemption.
type noPressure struct{}

func (noPressure) AdmitOrWait(*v1.Pod) (policy.Verdict, string) { return policy.Admitted, "" }
func (noPressure) InProgress(types.UID) bool                    { return false }
func (noPressure) Begin(context.Context, types.UID)             {}
func (noPressure) Forget(types.UID)                             {}

// nothing has no objects that housekeeping would remove.
type nothing struct{}

func (nothing) DeleteMirrorPod(context.Context, string, *types.UID) (bool, error) { return true, nil }
func (nothing) CleanupPods(map[types.UID]sets.Empty)                              {}
func (nothing) RemoveOrphanedPods(sets.Set[types.UID])                            {}
func (nothing) GC()                                                               {}
func (nothing) HasPossiblyMountedVolumesForPod(volumetypes.UniquePodName) bool    { return false }
func (nothing) CleanupOrphanedPodUsernsAllocations(context.Context, []*v1.Pod, []*kubecontainer.Pod) error {
	return nil
}
