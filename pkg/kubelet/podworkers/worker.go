package podworkers

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// worker is the goroutine of one pod with its data. Fields are guarded by Workers.mu unless noted otherwise.
type worker struct {
	uid  types.UID
	name klog.ObjectRef
	// wake has a token while an update may be pending.
	wake chan struct{}
	// ctx ends when the worker has to stop. It has the values of the first update's context.
	ctx    context.Context
	cancel context.CancelFunc
	// pending is the next update to process, active the last one that was. Each is nil if there is none.
	pending, active *Update
	// disruption is the accepted disruption, nil if there is none.
	disruption *podkill.Disruption
	// grace is the accepted grace period.
	grace gracePeriod
	// contexts are those of the running operation.
	contexts operationContexts
	// observed is the data for Views and metrics.
	observed observation
	// statusAge and lastStatus, the last status that was read without an error, are used by the worker's goroutine only.
	statusAge  statusAge
	lastStatus *kubecontainer.PodStatus
}

// operationContexts are the contexts of the operation in progress.
type operationContexts struct {
	// sync is the context of all syncs of the pod, until its termination is requested.
	sync       context.Context
	cancelSync context.CancelFunc
	// terminate is the context of the termination in progress. terminateCalled is true once Syncer.Terminate is called.
	terminate       context.Context
	cancelTerminate context.CancelFunc
	terminateCalled bool
}

// statusAge determines how old the status from the runtime may be for the next operation.
type statusAge struct {
	// lastOperation is the end of the last operation, lastSync the end of the last sync.
	lastOperation, lastSync time.Time
	// waited is true if a termination need not wait for a status newer than lastSync, or has waited already.
	waited bool
}

// newWorker returns a worker whose context has the values of one context and the end of the other.
//
//nolint:revive // two contexts: one for the values, one for the end
func newWorker(values context.Context, id identity, running context.Context) *worker {
	ctx, cancel := context.WithCancel(context.WithoutCancel(values))
	unlink := context.AfterFunc(running, cancel)
	p := &worker{
		uid:  id.uid,
		name: id.name,
		wake: make(chan struct{}, 1),
		cancel: func() {
			unlink()
			cancel()
		},
	}
	p.ctx = podsync.WithProgress(ctx, p.observed.setStep)
	return p
}

// config returns the newest specification that the worker has, nil if none.
func (p *worker) config() *v1.Pod {
	for _, update := range []*Update{p.pending, p.active} {
		if update != nil && update.Pod != nil {
			return update.Pod
		}
	}
	return nil
}

// accept makes update the pending one, with the earliest start time of the updates that it replaces.
func (p *worker) accept(update Update) {
	update.Kill = nil
	if p.pending != nil && !p.pending.StartTime.IsZero() && p.pending.StartTime.Before(update.StartTime) {
		update.StartTime = p.pending.StartTime
	}
	p.pending = &update
}

// replay makes the update that was processed last pending again.
func (p *worker) replay() {
	if p.active == nil {
		return
	}
	update := *p.active
	p.pending = &update
}

// take removes the pending update, makes it the active one, and returns it. The active one keeps the earlier
// specification and mirror pod if the update has none; type and start time are not kept.
func (p *worker) take() Update {
	update := *p.pending
	p.pending = nil
	active := Update{Pod: update.Pod, MirrorPod: update.MirrorPod, RunningPod: update.RunningPod}
	if p.active != nil {
		if active.Pod == nil {
			active.Pod = p.active.Pod
		}
		if active.MirrorPod == nil {
			active.MirrorPod = p.active.MirrorPod
		}
	}
	p.active = &active
	return update
}

// wakeUp puts the token into wake.
func (p *worker) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// maxGrace in seconds, a hundred years, bounds grace periods so that durations do not overflow.
const maxGrace = 100 * 365 * 24 * 60 * 60

// gracePeriod is the accepted grace period of a pod.
type gracePeriod struct {
	// seconds is 0 if no termination was requested. It only decreases.
	seconds int64
	// deadline is the end of the grace period. It only moves to an earlier time.
	deadline time.Time
}

// accept sets a grace period that the lifecycle has accepted, unless it is not shorter.
func (g *gracePeriod) accept(seconds int64, now time.Time) {
	if seconds == 0 || g.seconds != 0 && seconds >= g.seconds {
		return
	}
	deadline := now.Add(time.Duration(min(seconds, maxGrace)) * time.Second)
	if g.seconds == 0 || deadline.Before(g.deadline) {
		g.deadline = deadline
	}
	g.seconds = seconds
}

// shortened is true when a grace period in seconds has become shorter; 0 is none.
func shortened(before, after int64) bool { return before != 0 && after < before }
