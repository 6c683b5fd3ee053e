package kubelet

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/cgroupkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/fence"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus/generator"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// earlierKillTime is how long the termination of a pod waits for the kill of its processes, if an earlier run has
// fenced the pod.
const earlierKillTime = time.Second

// podFences connects the eviction manager, and the pod workers, with the cgroups of pods.
type podFences struct {
	fencer *fence.Fencer
	left   *fence.Left
	killer *cgroupkill.Killer
	// cgroups finds the path of a pod's cgroup.
	cgroups func() cm.PodContainerManager
	// record returns the record of a termination, fenced whether the fence of a pod is one of this run.
	record func(types.UID) (terminations.Record, bool)
	fenced func(types.UID) bool
	// pidsLimit is podPidsLimit of the KubeletConfiguration.
	pidsLimit int64
}

// newPodFences is called where pods have cgroups of their own.
func (b *build) newPodFences() *podFences {
	fencer := fence.New(fence.Config{Unified: util.IsCgroup2UnifiedMode(), Mounts: b.workers.cgroupMounts})
	forward := b.forward
	return &podFences{
		fencer: fencer, left: fence.NewLeft(fencer), killer: b.workers.killer,
		cgroups:   b.Machine.ContainerManager.NewPodContainerManager,
		record:    b.workers.records.Get,
		fenced:    func(uid types.UID) bool { return forward.eviction.Fenced(uid) },
		pidsLimit: b.Config.PodPidsLimit,
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

// atStart lists the pods that may have a fence of an earlier run.
func (f *podFences) atStart() component {
	return starts("fences of an earlier run", func(ctx context.Context) {
		err := f.left.Begin(func() (map[types.UID]bool, error) {
			cgroups, err := f.cgroups().GetAllPodsFromCgroups()
			pods := map[types.UID]bool{}
			for uid := range cgroups {
				pods[uid] = true
			}
			return pods, err
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Each pod is examined for the fence of an earlier run until that succeeds")
		}
	})
}

func (f *podFences) path(pod *v1.Pod) string {
	_, path := f.cgroups().GetPodContainerName(pod)
	return path
}

// Prepare implements eviction.Fencer.
func (f *podFences) Prepare(pod *v1.Pod) { f.fencer.Prepare(f.path(pod)) }

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

// oomVictims is generator.Config.OOMVictims on cgroup v1: the kernel notifies each cgroup of the pod of an OOM kill at
// its fence, and the runtime then reports all containers as OOMKilled. Only pods that the agent stops have fences: for
// all others the kernel log is not read. f may be nil.
func (f *podFences) oomVictims(pod *v1.Pod) func(containerID string) bool {
	if f == nil {
		return fence.Victims{}.Spared
	}
	if _, recorded := f.record(pod.UID); !recorded {
		return fence.Victims{}.Spared
	}
	return f.fencer.Victims(f.path(pod)).Spared
}

// repair is podsync.Config.RepairFence. The pod has its allocated resources. A fenced pod whose termination is recorded
// was evicted, also if that is recorded as a deletion: then the eviction has shortened the grace period.
func (f *podFences) repair(ctx context.Context, pod *v1.Pod) error {
	_, recorded := f.record(pod.UID)
	return f.left.Repair(ctx, &fence.Pod{
		UID: pod.UID, Cgroup: f.path(pod), Expected: f.expected(pod), Evicted: recorded,
		Fenced: func() bool { return f.fenced(pod.UID) },
		Kill: func() error {
			ctx, cancel := context.WithTimeout(ctx, earlierKillTime)
			defer cancel()
			return f.Kill(ctx, pod)
		},
	})
}

// expected returns the limits that the container manager sets when it creates the cgroup of the pod. The period of CPU
// quotas has no effect on them.
func (f *podFences) expected(pod *v1.Pod) fence.Expected {
	e := fence.Expected{PIDs: f.pidsLimit}
	if c := cm.ResourceConfigForPod(pod, false, uint64(cm.QuotaPeriod), false, ""); c.Memory != nil {
		e.Memory = *c.Memory
	}
	return e
}

// podFence is a fence as the eviction manager sees it.
type podFence struct{ *fence.Fence }

// Check implements eviction.Fence.
func (f podFence) Check() (eviction.FenceState, error) {
	state, err := f.Fence.Check()
	return eviction.FenceState(state), err
}

// unfencedCgroups reads the settings of pod cgroups for the status of the pod, without the fence: of a pod that is
// being stopped, a limit that is recognisable as a fence counts as one that cannot be read. The status then keeps the
// last limit.
type unfencedCgroups struct {
	generator.PodCgroups
	terminating func(types.UID) bool
}

// GetPodCgroupConfig implements generator.PodCgroups.
func (c unfencedCgroups) GetPodCgroupConfig(pod *v1.Pod, name v1.ResourceName) (*cm.ResourceConfig, error) {
	config, err := c.PodCgroups.GetPodCgroupConfig(pod, name)
	if config == nil || config.Memory == nil || !fence.IsFence(*config.Memory) || !c.terminating(pod.UID) {
		return config, err
	}
	return nil, err
}
