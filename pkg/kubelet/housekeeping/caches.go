package housekeeping

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// probes stops the probes of pods that cannot have running containers.
type probes struct{ manager Probes }

func (probes) Name() string { return "probes of terminated pods" }

func (t probes) Run(_ context.Context, r *round) error {
	keep := make(map[types.UID]sets.Empty)
	for uid := range r.known {
		if r.mayRun(uid) {
			keep[uid] = sets.Empty{}
		}
	}
	t.manager.CleanupPods(keep)
	return nil
}

// statuses removes the statuses of pods that are not configured any more. Mirror pods have statuses of their own.
type statuses struct{ manager Statuses }

func (statuses) Name() string { return "orphaned pod statuses" }

func (t statuses) Run(ctx context.Context, r *round) error {
	keep := make(map[types.UID]bool, len(r.pods)+len(r.mirrorPods))
	for _, pod := range r.pods {
		keep[pod.UID] = true
	}
	for _, pod := range r.mirrorPods {
		keep[pod.UID] = true
	}
	t.manager.RemoveOrphanedStatuses(klog.FromContext(ctx), keep)
	return nil
}

// allocations removes the allocations of pods that are not configured any more.
type allocations struct{ manager Allocations }

func (allocations) Name() string { return "orphaned allocations" }

func (t allocations) Run(_ context.Context, r *round) error {
	keep := sets.New[types.UID]()
	for _, pod := range r.pods {
		keep.Insert(pod.UID)
	}
	t.manager.RemoveOrphanedPods(keep)
	return nil
}

// userNamespaces releases the user IDs of pods that are neither configured nor running, and have no worker. The sandbox
// of a pod with a worker may be about to start, and its user IDs must not be those of another pod.
type userNamespaces struct{ manager UserNamespaces }

func (userNamespaces) Name() string { return "orphaned pod user namespace allocations" }

func (t userNamespaces) Run(ctx context.Context, r *round) error {
	keep := slices.Clone(r.running)
	for _, uid := range sortedUIDs(r.known) {
		keep = append(keep, &kubecontainer.Pod{ID: uid})
	}
	return t.manager.CleanupOrphanedPodUsernsAllocations(ctx, r.pods, keep)
}

// backOff removes entries of containers that have not failed for long.
type backOff struct{ entries BackOff }

func (backOff) Name() string { return "container back-off" }

func (t backOff) Run(context.Context, *round) error {
	t.entries.GC()
	return nil
}
