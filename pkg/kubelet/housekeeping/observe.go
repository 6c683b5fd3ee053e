package housekeeping

import (
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

// round is what one round of housekeeping knows.
type round struct {
	// cgroups are the pod cgroups that exist; nil when pods have none.
	cgroups map[types.UID]cm.CgroupName
	// pods are wanted; mirrorPods are their copies at the API server; orphanedMirrors name those without a static pod.
	pods, mirrorPods []*v1.Pod
	orphanedMirrors  []string
	// known are the pods the workers have in hand, those included that tasks of this round gave them.
	known map[types.UID]podworkers.KnownPod
	// running are the pods in the runtime, in order of their UIDs.
	running []*kubecontainer.Pod
}

// mayRun is true for a pod that may have containers as far as the workers know.
func (r *round) mayRun(uid types.UID) bool {
	k, ok := r.known[uid]
	return ok && (k.State == podlifecycle.WorkSync || k.State == podlifecycle.WorkTerminating)
}

// observer gathers the facts of a round.
type observer struct{ Config }

// observe reads the world in an order that makes mistakes harmless: what exists is read before what is wanted, as far
// as a pod that appears in between would look like an orphan, and the runtime is read last, past its cache, because
// pods the workers have just dropped must not be taken for running.
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

func compareUIDs(a, b types.UID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// sortedUIDs are the keys of a map in ascending order.
func sortedUIDs[V any](m map[types.UID]V) []types.UID { return slices.Sorted(maps.Keys(m)) }
