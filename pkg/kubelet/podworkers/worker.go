package podworkers

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// worker is one pod's goroutine and what belongs to it. Fields are guarded by Workers.mu unless said otherwise.
type worker struct {
	uid  types.UID
	name klog.ObjectRef
	// wake holds a token while there may be work.
	wake chan struct{}
	// ctx ends when the worker has to stop. It carries the values of the first update's context.
	ctx    context.Context
	cancel context.CancelFunc
	// pending is what the worker will look at next, active what it looked at last. Each is nil if there is none.
	pending, active *Update
	// disruption is what was accepted of what the status is to say; nil is nothing.
	disruption *podkill.Disruption
	// grace is the accepted grace period.
	grace gracePeriod
	// contexts are those of the running operation.
	contexts operationContexts
	// observed is for Views and metrics.
	observed observation
	// statusAge is used by the worker's goroutine only.
	statusAge statusAge
}

// operationContexts are the contexts of the operation that is running.
type operationContexts struct {
	// sync is the context of all syncs of the pod, until its termination is requested.
	sync       context.Context
	cancelSync context.CancelFunc
	// terminate is the context of the current termination. terminateCalled is true when Syncer.Terminate has been called.
	terminate       context.Context
	cancelTerminate context.CancelFunc
	terminateCalled bool
}

// statusAge determines how old the status from the runtime may be for the next operation.
type statusAge struct {
	// lastOperation is the end of the last operation, lastSync the end of the last sync.
	lastOperation, lastSync time.Time
	// waited is true if a termination need not wait for a status newer than lastSync (any more).
	waited bool
}

//nolint:revive // of the two contexts one gives the values and one the end
func newWorker(values context.Context, who identity, running context.Context) *worker {
	ctx, cancel := context.WithCancel(context.WithoutCancel(values))
	unlink := context.AfterFunc(running, cancel)
	p := &worker{
		uid:  who.uid,
		name: who.name,
		wake: make(chan struct{}, 1),
		cancel: func() {
			unlink()
			cancel()
		},
	}
	p.ctx = podsync.WithProgress(ctx, p.observed.setStep)
	return p
}

// config returns the newest specification the worker has, nil if none.
func (p *worker) config() *v1.Pod {
	for _, update := range []*Update{p.pending, p.active} {
		if update != nil && update.Pod != nil {
			return update.Pod
		}
	}
	return nil
}

// accept makes update the pending one. The oldest start time of what was not looked at yet is kept.
func (p *worker) accept(update Update) {
	update.Kill = nil
	if p.pending != nil && !p.pending.StartTime.IsZero() && p.pending.StartTime.Before(update.StartTime) {
		update.StartTime = p.pending.StartTime
	}
	p.pending = &update
}

// replay makes what was looked at last the pending update.
func (p *worker) replay() {
	if p.active == nil {
		return
	}
	again := *p.active
	p.pending = &again
}

// take moves the pending update to the active one and returns it as it came. The active one keeps a specification and
// a mirror pod that the update does not bring; type and start time belong to the update alone.
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

// maxGrace in seconds bounds what is reckoned with: a hundred years.
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
