package podworkers

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// eventContext are the arguments of the commands of one event.
type eventContext struct {
	// update is the update of the event, nil if none.
	update *Update
	// backoff is the delay of a Requeue command after a failure.
	backoff time.Duration
	// job receives the operation of a Run command.
	job *job
}

// apply applies an event to the worker's pod and executes the commands. Workers.mu must be held.
func (w *Workers) apply(p *worker, event podlifecycle.Event, c eventContext) podlifecycle.State {
	now := w.cfg.Clock.Now()
	state, commands := w.cfg.Store.Apply(p.uid, event, now)
	p.grace.accept(state.Termination.Grace, now)
	p.observe(state, now)
	if state.Phase >= podlifecycle.Terminated && state.Termination.Begun {
		// The containers that ran at the start have stopped.
		w.runningAtStart.Delete(p.uid)
	}
	for _, command := range commands {
		w.execute(p, command, c)
	}
	return state
}

func (w *Workers) execute(p *worker, command podlifecycle.Command, c eventContext) {
	switch command := command.(type) {
	case podlifecycle.StartWorker:
		w.group.Go(func() { w.run(p) })
	case podlifecycle.Accept:
		w.accept(p, *c.update, command.Amend)
	case podlifecycle.Replay:
		p.replay()
	case podlifecycle.Wake:
		p.wakeUp()
	case podlifecycle.WakeOther:
		if other, known := w.workers[command.UID]; known {
			other.wakeUp()
		}
	case podlifecycle.Run:
		*c.job = w.prepare(p, command)
	case podlifecycle.CancelSync:
		klog.FromContext(p.ctx).V(3).Info("Cancelling the sync of a pod that is to be terminated", "pod", p.name, "podUID",
			p.uid)
		p.contexts.cancelSync()
	case podlifecycle.Hasten:
		w.hasten(p, command.Grace)
	case podlifecycle.NotifyWaiters:
		w.waiters.closeAll(command.Waiters)
	case podlifecycle.Requeue:
		w.cfg.Queue.Enqueue(p.uid, w.delay(command.After, c.backoff))
	case podlifecycle.StopWorker:
		w.stopWorker(p)
	case podlifecycle.Remove:
		delete(w.workers, p.uid)
		w.deleteTermination(p.uid)
	}
}

// accept makes an update the pending one, with the resources that are allocated to the pod.
func (w *Workers) accept(p *worker, update Update, amend bool) {
	if amend {
		p.disruption = update.Kill.Disruption
	}
	if update.Pod != nil {
		update.Pod, _ = w.cfg.Allocation.UpdatePodFromAllocation(update.Pod)
	}
	p.accept(update)
}

// stopWorker ends the goroutine of a worker. The last specification is kept until the pod is removed.
func (w *Workers) stopWorker(p *worker) {
	if p.pending != nil {
		if p.active == nil {
			observeDuration("terminated", p.pending.StartTime)
			p.active = p.pending
		}
		p.pending = nil
	}
	p.disruption = nil
	p.cancel()
}

// prepare takes the pending update for an operation and gives the operation its context.
func (w *Workers) prepare(p *worker, run podlifecycle.Run) job {
	j := job{op: run.Op, update: p.take(), ctx: p.ctx}
	switch run.Op {
	case podlifecycle.OpSync:
		if p.contexts.sync == nil || p.contexts.sync.Err() != nil {
			p.contexts.sync, p.contexts.cancelSync = context.WithCancel(p.ctx)
		}
		j.ctx = p.contexts.sync
	case podlifecycle.OpTerminate, podlifecycle.OpTerminateRuntime:
		p.contexts.terminate, p.contexts.cancelTerminate = context.WithCancel(p.ctx)
		j.ctx = p.contexts.terminate
		j.grace, j.disruption = run.Grace, p.disruption
	default: // the operation uses the worker's own context
	}
	if run.First && j.update.Pod != nil {
		metrics.ContainersPerPodCount.Observe(float64(len(j.update.Pod.Spec.Containers)))
	}
	return j
}

// hasten shortens the grace period of a termination in progress to grace, in seconds. If Terminate has not been called
// yet, or Hasten fails, it cancels the operation: the update that shortened the grace period is pending, so the
// termination begins again with it.
func (w *Workers) hasten(p *worker, grace int64) {
	cancel := p.contexts.cancelTerminate
	if !p.contexts.terminateCalled {
		cancel()
		return
	}
	ctx := p.contexts.terminate
	request := podsync.TerminateRequest{Pod: p.active.Pod, GracePeriod: &grace, Disruption: p.disruption}
	w.group.Go(func() {
		logger := klog.FromContext(ctx)
		status, err := w.cfg.PodCache.Get(p.uid)
		if err == nil {
			request.Status = status
			err = w.cfg.Hastener.Hasten(ctx, request)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			logger.Error(err, "Failed to shorten a termination in progress, starting it again", "pod", p.name, "podUID", p.uid,
				"gracePeriod", grace)
			cancel()
		}
	})
}
