package podworkers

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// KnownPod describes a worker to housekeeping.
type KnownPod struct {
	// State is the coarse phase; its names are values of the label "lifecycle" of stock's metric kubelet_working_pods.
	State podlifecycle.Work
	// Orphan is true when the pod is no longer desired.
	Orphan bool
	// HasConfig is true when the worker has a specification of the pod.
	HasConfig bool
	// Static is true when that is the specification of a static pod.
	Static bool
}

// SyncKnownPods compares the workers with the desired pods, and returns the workers that are left. It removes finished
// pods that are not desired any more, and finished pods whose UID was created again; the caller has to send desired
// pods that are not returned as new ones. It stops pods that are not desired, and retries their terminations. It may be
// called only once all sources have been read: afterwards a pod without a worker counts as stopped.
func (w *Workers) SyncKnownPods(desired []*v1.Pod) map[types.UID]KnownPod {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cfg.Store.MarkSynced()
	known := w.reconcile(desired, func(podlifecycle.State, bool) bool { return true })
	w.deleteOldTerminations(desired)
	return known
}

// SyncStaticPods is the part of SyncKnownPods that is safe before all sources have been read. It stops a pod that is
// not desired only if the pod is static: only one source can have its UID, and that source has been read, because the
// pod has a worker. It skips a static pod that has not started: containers of the pod may run from an earlier run of
// the agent, which only the worker checks.
func (w *Workers) SyncStaticPods(desired []*v1.Pod) map[types.UID]KnownPod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reconcile(desired, func(s podlifecycle.State, wanted bool) bool {
		return wanted || s.Static && (s.Marks.Started || s.Phase == podlifecycle.Finished)
	})
}

// reconcile compares workers with the desired pods, but only those for which certain returns true: it is certain
// whether the pod is desired. It returns all workers that are left. Workers.mu must be held.
func (w *Workers) reconcile(desired []*v1.Pod,
	certain func(state podlifecycle.State, wanted bool) bool) map[types.UID]KnownPod {
	wanted := sets.New[types.UID]()
	for _, pod := range desired {
		wanted.Insert(pod.UID)
	}
	known := map[types.UID]KnownPod{}
	for _, uid := range w.cfg.Store.UIDs() {
		p := w.workers[uid]
		state, _ := w.cfg.Store.State(uid)
		if certain(state, wanted.Has(uid)) {
			state = w.apply(p, podlifecycle.Reconciled{Desired: wanted.Has(uid), Config: optionalFacts(p.config())},
				eventContext{})
		}
		if _, kept := w.workers[uid]; !kept {
			continue
		}
		pod := KnownPod{State: state.Work(), Orphan: !wanted.Has(uid)}
		if config := p.config(); config != nil {
			pod.HasConfig, pod.Static = true, kubetypes.IsStaticPod(config)
		}
		known[uid] = pod
	}
	return known
}
