package podworkers

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// KnownPod is what housekeeping has to know of a worker.
type KnownPod struct {
	// State prints as the metric working_pods wants it: sync, terminating, terminated.
	State podlifecycle.Work
	// Orphan is true when the pod is no longer desired.
	Orphan bool
	// HasConfig is true when the worker has a specification of the pod.
	HasConfig bool
	// Static is true when it has one and it is a static pod's.
	Static bool
}

// SyncKnownPods compares the workers with the pods that the configuration desires, and returns the workers that there
// are then. Finished pods that are not desired any more, and those whose UID is wanted again, are forgotten; the caller
// has to send desired pods that are not returned as new. Pods that are not desired are stopped, and driven to their end
// from here. It may be called only once all sources have been read: afterwards a pod that no worker knows counts as
// stopped.
func (w *Workers) SyncKnownPods(desired []*v1.Pod) map[types.UID]KnownPod {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cfg.Store.MarkSynced()
	known := w.reconcile(desired, func(podlifecycle.State, bool) bool { return true })
	w.deleteOldTerminations(desired)
	return known
}

// SyncStaticPods is SyncKnownPods as far as it can be done before all sources have been read. A pod that is not desired
// is stopped and driven to its end only if it is static: its source, the only one that can have its UID, has been read,
// or it would have no worker. One that has not started is left to its worker: it may run from an earlier run of the
// agent, and no caller looks for that here.
func (w *Workers) SyncStaticPods(desired []*v1.Pod) map[types.UID]KnownPod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reconcile(desired, func(s podlifecycle.State, wanted bool) bool {
		return wanted || s.Static && (s.Marks.Started || s.Phase == podlifecycle.Finished)
	})
}

// reconcile compares those workers with the desired pods for which sure is true: that the pod is wanted or not is known
// for certain. It returns all workers that there are then. Workers.mu must be held.
func (w *Workers) reconcile(desired []*v1.Pod,
	sure func(state podlifecycle.State, wanted bool) bool) map[types.UID]KnownPod {
	wanted := sets.New[types.UID]()
	for _, pod := range desired {
		wanted.Insert(pod.UID)
	}
	known := map[types.UID]KnownPod{}
	for _, uid := range w.cfg.Store.UIDs() {
		p := w.workers[uid]
		state, _ := w.cfg.Store.State(uid)
		if sure(state, wanted.Has(uid)) {
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
