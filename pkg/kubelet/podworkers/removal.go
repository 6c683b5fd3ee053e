package podworkers

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// BeginRemoval reserves a UID for the removal of what an earlier pod with that UID left on the node. It returns false
// for a pod that may have running containers or may start some; nothing of it may be removed. Until end is called, a
// new pod with that UID gets a worker but is not synced; it can be stopped. end must be called once, from any
// goroutine. Several removals of one UID may be in progress. BeginRemoval does not wait for a pod.
func (w *Workers) BeginRemoval(uid types.UID) (end func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if state, known := w.cfg.Store.State(uid); known && state.Work() != podlifecycle.WorkTerminated {
		return nil, false
	}
	w.removals[uid]++
	return func() { w.endRemoval(uid) }, true
}

// endRemoval wakes the worker of a pod that could not start because of the removal.
func (w *Workers) endRemoval(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.removals[uid]--; w.removals[uid] > 0 {
		return
	}
	delete(w.removals, uid)
	if p, known := w.workers[uid]; known {
		p.wakeUp()
	}
}

// awaitsRemoval is true for a pod that must not start, because something of an earlier pod with its UID is being
// removed. endRemoval wakes its worker. Workers.mu must be held.
func (w *Workers) awaitsRemoval(p *worker) bool {
	state, known := w.cfg.Store.State(p.uid)
	if !known || state.Phase != podlifecycle.Known || w.removals[p.uid] == 0 {
		return false
	}
	klog.FromContext(p.ctx).V(2).Info("The pod starts when the leftovers of an earlier pod with its UID are removed",
		"pod", p.name, "podUID", p.uid)
	return true
}
