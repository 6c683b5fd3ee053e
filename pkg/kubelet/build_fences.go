package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/cgroupkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/fence"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// podFences connects the eviction manager with the cgroups of pods.
type podFences struct {
	fencer *fence.Fencer
	killer *cgroupkill.Killer
	// cgroups finds the path of a pod's cgroup.
	cgroups func() cm.PodContainerManager
}

// newPodFences returns nil if pods have no cgroups of their own.
func (b *build) newPodFences() *podFences {
	if b.workers.killer == nil {
		return nil
	}
	return &podFences{
		fencer:  fence.New(fence.Config{Unified: util.IsCgroup2UnifiedMode(), Mounts: b.workers.cgroupMounts}),
		killer:  b.workers.killer,
		cgroups: b.Machine.ContainerManager.NewPodContainerManager,
	}
}

// evictionFencer returns the interface of the eviction manager, nil for no fences.
func (f *podFences) evictionFencer() eviction.Fencer {
	if f == nil {
		return nil
	}
	return f
}

// component runs the thread that sets fences. It stops after the eviction manager.
func (f *podFences) component() component { return runs("fences of evicted pods", f.fencer.Run) }

func (f *podFences) path(pod *v1.Pod) string {
	_, path := f.cgroups().GetPodContainerName(pod)
	return path
}

// Fence implements eviction.Fencer.
func (f *podFences) Fence(pod *v1.Pod, l policy.Fence) (eviction.Fence, error) {
	set, err := f.fencer.Fence(f.path(pod), fence.Limits{Slack: int64(l.Slack), PIDs: l.PIDs})
	switch {
	case fence.IsGone(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return podFence{set}, nil
}

// Kill implements eviction.Fencer.
func (f *podFences) Kill(ctx context.Context, pod *v1.Pod) error {
	return f.killer.Kill(ctx, f.path(pod))
}

// podFence is a fence as the eviction manager sees it.
type podFence struct{ *fence.Fence }

// Check implements eviction.Fence.
func (f podFence) Check() (eviction.FenceState, error) {
	state, err := f.Fence.Check()
	return eviction.FenceState(state), err
}
