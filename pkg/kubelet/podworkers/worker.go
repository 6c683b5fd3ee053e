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
	granted
	sight
	flight
	// seen belongs to the goroutine.
	seen
}

// flight is about the operation that is running.
type flight struct {
	// syncing is the context of all syncs of the pod, until termination is requested.
	syncing    context.Context
	cancelSync context.CancelFunc
	// terminating is the context of the present Terminate; inTerminate is true once the call has been made.
	terminating     context.Context
	cancelTerminate context.CancelFunc
	inTerminate     bool
}

// seen is how old the runtime's status may be for the next operation.
type seen struct {
	// lastOperation is when the last operation ended, lastSync when the last sync did.
	lastOperation, lastSync time.Time
	// waited is true when there is no need to wait for a status newer than lastSync (any more).
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
	p.ctx = podsync.WithProgress(ctx, p.does)
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

// signal puts the token into wake.
func (p *worker) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
