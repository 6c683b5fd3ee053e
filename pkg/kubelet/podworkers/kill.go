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

// ErrKillTimeout is the error of podkill.Overdue: the containers have not stopped in time. The termination continues.
var ErrKillTimeout = errors.New("timeout waiting to kill pod")

// ErrStopped is the error of a request that is refused, or has failed, because the agent stops.
var ErrStopped = errors.New("the pod workers have stopped")

// KillPod requests the termination of a pod; it is a podkill.Func. A pod that does not stop within max(10 s, 1.5 ×
// grace period), as in stock, is overdue: KillPod sends the event ExceededGracePeriod, and the termination continues.
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

// EscalationExhausted is true for a pod whose containers have not stopped, and
//
//   - the last step of the escalation was done (package escalation); or
//   - the escalation has not begun when it should have ended: a step of the termination before the kill blocks; or
//   - the escalation has not continued for its longest duration and a grace period: a step after the kill blocks, for
//     example the release of devices.
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
		return o.Step == escalation.Report || now.After(o.Seen.Add(grace+longest))
	}
	return !p.grace.deadline.IsZero() && now.After(p.grace.deadline.Add(longest))
}

// TerminationDeadline returns when the grace period of a pod that is being stopped ends, whoever requested it and also
// after a restart of the agent. It is zero for a pod whose termination was not requested.
func (w *Workers) TerminationDeadline(uid types.UID) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, known := w.workers[uid]; known {
		return p.grace.deadline
	}
	return time.Time{}
}

// endSignals end the wait for a pod, besides a context.
type endSignals struct {
	stopped <-chan struct{}
	timeout <-chan time.Time
}

// awaitStop returns how a request ended. If the pod has stopped, the ending is Stopped, even if the time is over or the
// context has ended as well.
func (w *Workers) awaitStop(ctx context.Context, pod *v1.Pod, waiter podlifecycle.WaiterID,
	ends endSignals) podkill.Ending {
	var ending podkill.Ending
	select {
	case <-ends.stopped:
		return podkill.Ending{Outcome: podkill.Stopped}
	case <-ends.timeout:
		w.removeWaiter(pod, waiter) //nolint:contextcheck // operations run in the worker's context
		ending = podkill.Ending{Outcome: podkill.Overdue, Err: ErrKillTimeout}
	case <-w.running.Done():
		ending = podkill.Ending{Outcome: podkill.Failed, Err: ErrStopped}
	case <-ctx.Done():
		w.removeWaiter(pod, waiter) //nolint:contextcheck // operations run in the worker's context
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

// contextEnded returns the ending of a request whose context has ended.
func contextEnded(ctx context.Context) podkill.Ending {
	return podkill.Ending{Outcome: podkill.Failed, Err: fmt.Errorf("waiting to kill pod: %w", context.Cause(ctx))}
}

// answerOf returns the answer to a request to stop pod, from the states before and after it.
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

// deletionGrace returns deletionGracePeriodSeconds of a pod, 0 if it is not set.
func deletionGrace(pod *v1.Pod) int64 {
	if pod == nil || pod.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return *pod.DeletionGracePeriodSeconds
}

// killTimeout returns the time within which a pod should stop: the grace period in seconds, and time for the runtime.
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

// removeWaiter removes a waiter that has given up, so that waiters do not accumulate for a pod that does not stop.
func (w *Workers) removeWaiter(pod *v1.Pod, waiter podlifecycle.WaiterID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters.remove(waiter)
	if p, known := w.workers[pod.UID]; known {
		w.apply(p, podlifecycle.WaiterLeft{Waiter: waiter}, eventContext{})
	}
}

// waiters are the channels that are closed at the end of a termination, by the IDs that the lifecycle uses.
type waiters struct {
	last     podlifecycle.WaiterID
	channels map[podlifecycle.WaiterID]chan<- struct{}
}

func newWaiters() waiters {
	return waiters{channels: map[podlifecycle.WaiterID]chan<- struct{}{}}
}

// add registers a channel and returns its ID, 0 for nil.
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

// remove removes a waiter without closing its channel.
func (w *waiters) remove(id podlifecycle.WaiterID) { delete(w.channels, id) }
