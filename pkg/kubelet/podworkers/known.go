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

// SyncKnownPods compares the workers with the pods that the configuration desires, and returns the workers that there are then. Finished pods
// that are not desired any more, and those whose UID is wanted again, are forgotten; the caller has to send desired pods that are not
// returned as new. Pods that are not desired are stopped, and driven to their end from here. It may be called only once all sources
// have been read: afterwards a pod that no worker knows counts as stopped.
func (w *Workers) SyncKnownPods(desired []*v1.Pod) map[types.UID]KnownPod {
	wanted := sets.New[types.UID]()
	for _, pod := range desired {
		wanted.Insert(pod.UID)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cfg.Store.MarkSynced()
	known := map[types.UID]KnownPod{}
	for _, uid := range w.cfg.Store.UIDs() {
		p := w.workers[uid]
		state := w.step(p, podlifecycle.Reconciled{Desired: wanted.Has(uid), Config: optionalFacts(p.config())}, consequences{})
		if _, kept := w.workers[uid]; !kept {
			continue
		}
		pod := KnownPod{State: state.Work(), Orphan: !wanted.Has(uid)}
		if config := p.config(); config != nil {
			pod.HasConfig, pod.Static = true, kubetypes.IsStaticPod(config)
		}
		known[uid] = pod
	}
	w.forgetBegun(desired)
	return known
}
