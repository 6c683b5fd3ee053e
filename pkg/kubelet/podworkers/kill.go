package podworkers

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/events"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// ErrKillTimeout is returned when a pod's containers have not ended in time. The pod goes on terminating.
var ErrKillTimeout = errors.New("timeout waiting to kill pod")

// ErrStopped is returned when the agent stops while a pod is being killed.
var ErrStopped = errors.New("the pod workers have stopped")

// KillPod asks for the stop of a pod, on the terms of podkill.Func. A pod that does not stop within max(10 s, 1.5 ×
// grace period) is overdue: an event about it says so, and it goes on terminating.
func (w *Workers) KillPod(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
	done := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return podkill.Refused, podkill.Ended(contextEnded(ctx))
	}
	received := w.update(ctx, Update{
		UpdateType: kubetypes.SyncPodKill,
		Pod:        r.Pod,
		Kill: &KillOptions{
			Completed: done, Evict: r.Evict, Disruption: r.Disruption, GracePeriod: r.GracePeriodSeconds,
		},
	})
	if received.answer == podkill.Refused {
		return podkill.Refused, podkill.Ended(podkill.Ending{Err: ErrStopped})
	}
	ended := make(chan podkill.Ending, 1)
	timeout := w.cfg.Clock.NewTimer(killTimeout(r.Pod, r.GracePeriodSeconds))
	w.group.Go(func() {
		defer timeout.Stop()
		ended <- w.awaitStop(ctx, r.Pod, received.waiter, endSignals{stopped: done, timeout: timeout.C()})
	})
	return received.answer, ended
}

// EscalationExhausted is true for a pod whose containers have not stopped although the last rung of the ladder was
// climbed (package escalation), or although the ladder has not even begun when it should have ended: then the operation
// that comes before the kill does not return; or although the ladder has not gone on for as long as it may take to its
// end, and a grace period: then what comes after the kill does not end, such as giving back the pod's devices.
func (w *Workers) EscalationExhausted(uid types.UID) bool {
	overdue := w.cfg.Overdue()
	w.mu.Lock()
	defer w.mu.Unlock()
	p, known := w.workers[uid]
	state, _ := w.cfg.Store.State(uid)
	if !known || state.Phase != podlifecycle.Terminating {
		return false
	}
	now, longest := w.cfg.Clock.Now(), escalation.DefaultLimits().Longest()
	if o, begun := overdue[uid]; begun {
		grace := time.Duration(min(p.grace.seconds, maxGrace)) * time.Second
		return o.Rung == escalation.Report || now.After(o.Seen.Add(grace+longest))
	}
	return !p.grace.deadline.IsZero() && now.After(p.grace.deadline.Add(longest))
}

// endSignals are what ends the waiting for a pod, besides a context.
type endSignals struct {
	stopped <-chan struct{}
	timeout <-chan time.Time
}

// awaitStop returns how a request ended. A pod that has stopped has stopped, whatever else is over at the same time.
func (w *Workers) awaitStop(ctx context.Context, pod *v1.Pod, waiter podlifecycle.WaiterID,
	ends endSignals) podkill.Ending {
	var ending podkill.Ending
	select {
	case <-ends.stopped:
		return podkill.Ending{Outcome: podkill.Stopped}
	case <-ends.timeout:
		w.removeWaiter(pod, waiter) //nolint:contextcheck // what a worker does runs in the worker's context
		ending = podkill.Ending{Outcome: podkill.Overdue, Err: ErrKillTimeout}
	case <-w.running.Done():
		ending = podkill.Ending{Outcome: podkill.Failed, Err: ErrStopped}
	case <-ctx.Done():
		w.removeWaiter(pod, waiter) //nolint:contextcheck // what a worker does runs in the worker's context
		ending = contextEnded(ctx)
	}
	select {
	case <-ends.stopped:
		return podkill.Ending{Outcome: podkill.Stopped}
	default:
	}
	if ending.Outcome == podkill.Overdue {
		w.cfg.Recorder.Eventf(pod, v1.EventTypeWarning, events.ExceededGracePeriod,
			"Container runtime did not kill the pod within specified grace period.")
	}
	return ending
}

// contextEnded is the ending of a request whose context has ended.
func contextEnded(ctx context.Context) podkill.Ending {
	return podkill.Ending{Outcome: podkill.Failed, Err: fmt.Errorf("waiting to kill pod: %w", context.Cause(ctx))}
}

// answerOf compares the states of a pod before and after a request to stop it, which came with the given specification.
func answerOf(before, after podlifecycle.State, pod *v1.Pod) podkill.Answer {
	earlier := before.Termination.Grace
	if !before.TerminationRequested() {
		earlier = deletionGrace(pod)
	}
	switch {
	case after.Phase >= podlifecycle.Terminated:
		return podkill.AlreadyStopped
	case !before.TerminationRequested() && after.Termination.Cause.ByAgent():
		return podkill.Begun
	case shortened(earlier, after.Termination.Grace):
		return podkill.Hastened
	}
	return podkill.Unchanged
}

// deletionGrace is the grace period in seconds with which the API server has deleted the pod, 0 if it has not, or with
// none.
func deletionGrace(pod *v1.Pod) int64 {
	if pod == nil || pod.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return *pod.DeletionGracePeriodSeconds
}

// killTimeout leaves the runtime time for its own work beside the grace period.
func killTimeout(pod *v1.Pod, gracePeriod *int64) time.Duration {
	if gracePeriod == nil || *gracePeriod < 0 {
		gracePeriod = pod.Spec.TerminationGracePeriodSeconds
	}
	if gracePeriod == nil {
		return minimumKillTimeout
	}
	grace := time.Duration(min(*gracePeriod, maxGrace)) * time.Second
	return max(minimumKillTimeout, grace+grace/2)
}

// removeWaiter drops a waiter, so that those who gave up do not pile up on a pod that cannot be killed.
func (w *Workers) removeWaiter(pod *v1.Pod, waiter podlifecycle.WaiterID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters.remove(waiter)
	if p, known := w.workers[pod.UID]; known {
		w.apply(p, podlifecycle.WaiterLeft{Waiter: waiter}, eventContext{})
	}
}

// waiters are those who want to hear of the end of a termination. The lifecycle knows them by number.
type waiters struct {
	last     podlifecycle.WaiterID
	channels map[podlifecycle.WaiterID]chan<- struct{}
}

func newWaiters() waiters {
	return waiters{channels: map[podlifecycle.WaiterID]chan<- struct{}{}}
}

// add registers a waiter; nil is nobody.
func (w *waiters) add(ch chan<- struct{}) podlifecycle.WaiterID {
	if ch == nil {
		return 0
	}
	w.last++
	w.channels[w.last] = ch
	return w.last
}

func (w *waiters) closeAll(ids []podlifecycle.WaiterID) {
	for _, id := range ids {
		if ch, waits := w.channels[id]; waits {
			close(ch)
			delete(w.channels, id)
		}
	}
}

// remove forgets a waiter without an answer.
func (w *waiters) remove(id podlifecycle.WaiterID) { delete(w.channels, id) }
