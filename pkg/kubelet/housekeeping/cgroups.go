package housekeeping

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// orphanCgroups removes the cgroups of pods that must not run. A removal kills the processes in the cgroup and may take
// long, so it runs in a goroutine, at most one per pod. Until it ends, no pod with that UID starts: its processes would
// be killed.
type orphanCgroups struct {
	cgroups func() PodCgroups
	disk    *Disk
	workers Remover

	mu       sync.Mutex
	removing sets.Set[types.UID]
	done     sync.WaitGroup
}

func (*orphanCgroups) Name() string { return "orphaned pod cgroups" }

func (t *orphanCgroups) Run(ctx context.Context, r *round) error {
	if len(r.cgroups) == 0 {
		return nil
	}
	logger := klog.FromContext(ctx)
	cgroups := t.cgroups()
	for _, uid := range sortedUIDs(r.cgroups) {
		name := r.cgroups[uid]
		switch {
		case r.mayRun(uid):
		case t.disk.VolumesExist(ctx, uid):
			// If the cgroup were removed first, memory-backed volumes would be charged to its parent. Meanwhile its CPU limit is
			// reduced.
			logger.V(3).Info("Orphaned pod found, but volumes not yet removed.  Reducing cpu to minimum", "podUID", uid)
			if err := cgroups.ReduceCPULimits(logger, name); err != nil {
				logger.Info("Failed to reduce cpu time for pod pending volume cleanup", "podUID", uid, "err", err)
			}
		default:
			t.remove(logger, cgroups, uid, name)
		}
	}
	return nil
}

// remove removes a cgroup in a goroutine. A failure is only logged, since the next round retries.
func (t *orphanCgroups) remove(logger klog.Logger, cgroups PodCgroups, uid types.UID, name cm.CgroupName) {
	endRemoval, ok := t.begin(uid)
	if !ok {
		return
	}
	logger.V(3).Info("Orphaned pod found, removing pod cgroups", "podUID", uid)
	t.done.Go(func() {
		defer endRemoval()
		defer t.end(uid)
		if err := cgroups.Destroy(logger, name); err != nil {
			logger.Info("Failed to destroy orphaned pod cgroup", "podUID", uid, "err", err)
		}
	})
}

func (t *orphanCgroups) begin(uid types.UID) (end func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.removing.Has(uid) {
		return nil, false
	}
	if end, ok = t.workers.BeginRemoval(uid); !ok {
		return nil, false
	}
	if t.removing == nil {
		t.removing = sets.New[types.UID]()
	}
	t.removing.Insert(uid)
	return end, true
}

func (t *orphanCgroups) end(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removing.Delete(uid)
}

func (t *orphanCgroups) wait() { t.done.Wait() }
