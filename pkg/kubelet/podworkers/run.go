package podworkers

import (
	"context"
	"errors"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// job is one operation to execute.
type job struct {
	op     podlifecycle.Operation
	update Update
	ctx    context.Context
	// grace in seconds and disruption are set for terminations.
	grace      *int64
	disruption *podkill.Disruption
}

// result is the result of a job.
type result struct {
	outcome podlifecycle.Outcome
	err     error
	// afterRecord is called once the result has been recorded, nil if there is nothing to call.
	afterRecord func()
}

// run is the goroutine of a worker. It ends on the command StopWorker, and when the agent stops.
func (w *Workers) run(p *worker) {
	defer utilruntime.HandleCrashWithContext(p.ctx)
	logger := klog.FromContext(p.ctx)
	defer logger.V(3).Info("Pod worker has stopped", "pod", p.name, "podUID", p.uid)
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.wake:
		}
		if p.ctx.Err() != nil {
			return
		}
		j, registered := w.nextJob(p, w.fullNameInUse(p))
		if !registered {
			return
		}
		if j.op == podlifecycle.OpNone {
			continue
		}
		logger.V(4).Info("Pod worker begins an operation", "operation", j.op, "pod", p.name, "podUID", p.uid, "updateType",
			j.update.UpdateType)
		r := w.runOperation(p, j)
		w.report(p, j, r)
		logger.V(4).Info("Pod worker ended an operation", "operation", j.op, "pod", p.name, "podUID", p.uid, "updateType",
			j.update.UpdateType)
	}
}

// registered is false once the worker was removed, also when its UID has another worker now. A removed worker may still
// wait for the runtime; its results do not concern the present pod. Workers.mu must be held.
func (w *Workers) registered(p *worker) bool { return w.workers[p.uid] == p }

// nextJob returns the next operation of the worker; the zero job is none. nameUsed is true when the pod must not start
// now. It returns false if the worker was removed and has to end.
func (w *Workers) nextJob(p *worker, nameUsed bool) (job, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.registered(p) {
		return job{}, false
	}
	if w.awaitsRemoval(p) {
		return job{}, true
	}
	var j job
	ready := podlifecycle.WorkerReady{NameUsed: nameUsed}
	if state, known := w.cfg.Store.State(p.uid); known && state.Static && !state.Marks.Started {
		ready.Stopped = w.runtimeStopped(p.uid)
	}
	w.apply(p, ready, eventContext{job: &j, backoff: w.backoff(nil)})
	return j, true
}

// runOperation executes a job and returns its result.
func (w *Workers) runOperation(p *worker, j job) result {
	p.observed.beginOperation(j.op)
	var r result
	switch j.op {
	case podlifecycle.OpSync:
		r = w.sync(p, j)
	case podlifecycle.OpTerminate:
		r.err = w.terminate(p, j)
	case podlifecycle.OpTerminateRuntime:
		r.err = w.cfg.Runtime.TerminateRuntimePod(j.ctx, j.update.RunningPod)
	case podlifecycle.OpCleanUp:
		r.err = w.cleanUp(p, j)
	default: // there is nothing to do
	}
	switch {
	case errors.Is(r.err, context.Canceled), r.err != nil && j.ctx.Err() != nil:
		r.outcome = podlifecycle.Cancelled
	case r.err != nil:
		r.outcome = podlifecycle.Failed
	case r.outcome != podlifecycle.Completed:
		r.outcome = podlifecycle.Succeeded
	}
	return r
}

func (w *Workers) sync(p *worker, j job) result {
	status, err := w.statusNewerThan(j.ctx, j.update.Pod, p.statusAge.lastOperation)
	if err != nil {
		return result{err: err}
	}
	p.lastStatus = status
	if err := j.ctx.Err(); err != nil {
		return result{err: err}
	}
	synced, err := w.cfg.Syncer.Sync(j.ctx, podsync.SyncRequest{
		UpdateType: j.update.UpdateType,
		Pod:        j.update.Pod,
		MirrorPod:  j.update.MirrorPod,
		Status:     status,
	})
	p.statusAge = statusAge{lastOperation: w.cfg.Clock.Now(), lastSync: w.cfg.Clock.Now()}
	r := result{err: err, afterRecord: synced.AfterSync}
	if err == nil && synced.Terminal {
		r.outcome = podlifecycle.Completed
		// Such a sync starts no container, so its status is new enough for the termination.
		p.statusAge.waited = true
	}
	return r
}

func (w *Workers) terminate(p *worker, j job) error {
	status, err := w.statusForTermination(p, j)
	if err != nil {
		return err
	}
	if !w.beginTerminate(j.ctx, p) {
		return j.ctx.Err()
	}
	err = w.cfg.Syncer.Terminate(j.ctx, podsync.TerminateRequest{
		Pod:         j.update.Pod,
		Status:      status,
		GracePeriod: j.grace,
		Disruption:  j.disruption,
	})
	p.statusAge.lastOperation = w.cfg.Clock.Now()
	return err
}

// beginTerminate records that Terminate is about to be called. It returns false if the termination was cancelled
// before.
func (w *Workers) beginTerminate(ctx context.Context, p *worker) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.contexts.terminateCalled = ctx.Err() == nil
	return p.contexts.terminateCalled
}

func (w *Workers) cleanUp(p *worker, j job) error {
	status, err := w.statusNewerThan(j.ctx, j.update.Pod, p.statusAge.lastOperation)
	if err != nil {
		return err
	}
	err = w.cfg.Syncer.CleanUp(j.ctx, j.update.Pod, status)
	p.statusAge.lastOperation = w.cfg.Clock.Now()
	return err
}

// report reports the result of a job to the lifecycle, and to log and metrics.
func (w *Workers) report(p *worker, j job, r result) {
	logger := klog.FromContext(p.ctx)
	switch r.outcome {
	case podlifecycle.Cancelled:
		logger.V(2).Info("Operation of a pod worker was cancelled", "operation", j.op, "pod", p.name, "podUID", p.uid,
			"updateType", j.update.UpdateType)
	case podlifecycle.Failed:
		logger.Error(r.err, "Error syncing pod, skipping", "operation", j.op, "pod", p.name, "podUID", p.uid)
	default: // success is not logged
	}
	returned := podlifecycle.Returned{Outcome: r.outcome}
	if j.update.Pod != nil {
		returned.Pod = factsOf(j.update.Pod)
	}
	state, registered := w.record(p, returned, r)
	if !registered {
		return
	}
	if r.afterRecord != nil {
		r.afterRecord()
	}
	label := j.update.UpdateType.String()
	if j.op == podlifecycle.OpCleanUp && state.Phase == podlifecycle.Finished {
		label = "terminated"
	}
	observeDuration(label, j.update.StartTime)
}

// record applies the end of an operation to the lifecycle. It returns false if the worker was removed. It formats the
// error, which may be long, before it takes the lock.
func (w *Workers) record(p *worker, returned podlifecycle.Returned, r result) (podlifecycle.State, bool) {
	backoff, message := w.backoff(r.err), ""
	if r.outcome == podlifecycle.Failed {
		message = errorMessage(r.err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.registered(p) {
		return podlifecycle.State{}, false
	}
	p.endOperation(r.outcome, message, w.cfg.Clock.Now())
	if p.contexts.cancelTerminate != nil {
		p.contexts.cancelTerminate()
		p.contexts.terminateCalled = false
	}
	state := w.apply(p, returned, eventContext{backoff: backoff})
	if state.Phase >= podlifecycle.Terminated {
		p.disruption = nil
	}
	return state, true
}

// observeDuration records the time since an update arrived, if the update has that time.
func observeDuration(label string, start time.Time) {
	if !start.IsZero() {
		metrics.PodWorkerDuration.WithLabelValues(label).Observe(metrics.SinceInSeconds(start))
	}
}
