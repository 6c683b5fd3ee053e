package housekeeping

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

// round is the state at the beginning of one round of housekeeping.
type round struct {
	// cgroups are the existing pod cgroups; nil if pods have none.
	cgroups map[types.UID]cm.CgroupName
	// pods are configured; mirrorPods are the mirror pods; orphanedMirrors are the full names of those without a static
	// pod.
	pods, mirrorPods []*v1.Pod
	orphanedMirrors  []string
	// known are the pods with a worker, including those that tasks of this round have passed to the workers.
	known map[types.UID]podworkers.KnownPod
	// running are the pods in the runtime, sorted by UID.
	running []*kubecontainer.Pod
}

// mayRun is true for a pod that may have running containers according to the workers.
func (r *round) mayRun(uid types.UID) bool {
	k, ok := r.known[uid]
	return ok && (k.State == podlifecycle.WorkSync || k.State == podlifecycle.WorkTerminating)
}

// observer reads the state for a round.
type observer struct{ Config }

// observe reads the state in an order that prevents wrong removals: existing cgroups before configured pods, since a
// pod that is added in between would be regarded as orphaned; the runtime last and without its cache, since a pod whose
// worker has just been removed would be regarded as running.
func (o observer) observe(ctx context.Context) (*round, error) {
	r := &round{}
	if o.Cgroups != nil {
		found, err := o.Cgroups().GetAllPodsFromCgroups()
		if err != nil {
			return nil, fmt.Errorf("failed to get list of pods that still exist on cgroup mounts: %w", err)
		}
		r.cgroups = found
	}
	r.pods, r.mirrorPods, r.orphanedMirrors = o.Pods.GetPodsAndMirrorPods()
	r.known = o.Workers.SyncKnownPods(r.pods)
	if err := o.Runtime.ForceUpdateIfOlder(ctx, o.Clock.Now()); err != nil {
		return nil, fmt.Errorf("listing the containers of the runtime: %w", err)
	}
	running, err := o.Runtime.GetPods(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the containers of the runtime: %w", err)
	}
	r.running = slices.SortedFunc(slices.Values(running), func(a, b *kubecontainer.Pod) int {
		return compareUIDs(a.ID, b.ID)
	})
	return r, nil
}

func compareUIDs(a, b types.UID) int { return cmp.Compare(a, b) }

// sortedUIDs returns the keys of a map in ascending order.
func sortedUIDs[V any](m map[types.UID]V) []types.UID { return slices.Sorted(maps.Keys(m)) }
