package podworkers

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// keep has a termination survive a restart that the agent has asked for. earlier is the grace period in seconds before the update, 0 if none.
// Static pods are left out: their files want them still, so that the next run starts them again, as stock does; were they stopped
// instead, an API server among them would never come back.
func (w *Workers) keep(p *worker, update *Update, state podlifecycle.State, earlier int64) {
	cause, may := causes[state.Termination.Cause]
	if w.cfg.Terminations == nil || !may || state.Phase != podlifecycle.Terminating || state.Static || update.Pod == nil {
		return
	}
	record, kept := w.cfg.Terminations.Get(p.uid)
	asked := update.Kill != nil && (cause != terminations.Deletion || shortened(earlier, p.grace))
	sooner := p.deadline.Before(record.Deadline)
	amended := p.disruption != nil && record.Disruption == nil
	if kept && !sooner && !amended || !kept && !asked {
		return
	}
	if !kept {
		record = terminations.Record{
			UID: p.uid, Namespace: p.name.Namespace, Name: p.name.Name, Cause: cause, Requested: w.cfg.Clock.Now(), Deadline: p.deadline,
		}
	}
	record.GracePeriodSeconds = state.Termination.Grace
	if sooner {
		record.Deadline = p.deadline
	}
	if amended {
		record.Disruption = p.disruption
	}
	if !w.cfg.Terminations.Save(record) {
		klog.FromContext(p.ctx).Info("Too many terminations are kept already, this one will not survive a restart", "pod", p.name, "podUID", p.uid)
	}
}

// forgetBegun forgets terminations that are over: the API server shows the end of the pod, or does not know it any more.
func (w *Workers) forgetBegun(desired []*v1.Pod) {
	if w.cfg.Terminations == nil {
		return
	}
	pods := make(map[types.UID]*v1.Pod, len(desired))
	for _, pod := range desired {
		pods[pod.UID] = pod
	}
	w.cfg.Terminations.DeleteFunc(func(r terminations.Record) bool {
		pod, configured := pods[r.UID]
		if !configured {
			return true
		}
		state, known := w.cfg.Store.State(r.UID)
		stopped := !known || state.Phase >= podlifecycle.Terminated
		return stopped && podutil.IsPodPhaseTerminal(pod.Status.Phase)
	})
}

// forgetLife forgets the termination of a life that is over. Should the UID come again it is another life.
func (w *Workers) forgetLife(uid types.UID) {
	if w.cfg.Terminations != nil {
		w.cfg.Terminations.DeleteFunc(func(r terminations.Record) bool { return r.UID == uid })
	}
}
