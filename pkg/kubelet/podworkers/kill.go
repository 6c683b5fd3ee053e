package podworkers

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/events"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// ErrKillTimeout is returned when a pod's containers have not ended in time. The pod goes on terminating.
var ErrKillTimeout = errors.New("timeout waiting to kill pod")

// ErrStopped is returned when the agent stops while a pod is being killed.
var ErrStopped = errors.New("the pod workers have stopped")

// KillPod stops a pod and waits until none of its containers runs, at most for max(10 s, 1.5 × grace period). It returns at once
// for a pod that has stopped already. gracePeriod in seconds overrides the pod's own if not nil, setStatus amends the reported status
// if not nil (see KillOptions). ErrKillTimeout, ErrStopped and the end of ctx end the waiting, not the killing.
func (w *Workers) KillPod(ctx context.Context, pod *v1.Pod, evict bool, gracePeriod *int64, setStatus func(*v1.PodStatus)) error {
	done := make(chan struct{})
	waiter := w.update(ctx, Update{
		UpdateType: kubetypes.SyncPodKill,
		Pod:        pod,
		Kill:       &KillOptions{Completed: done, Evict: evict, SetStatus: setStatus, GracePeriod: gracePeriod},
	})
	timeout := w.cfg.Clock.NewTimer(killTimeout(pod, gracePeriod))
	defer timeout.Stop()
	select {
	case <-done:
		return nil
	case <-timeout.C():
		w.withdraw(pod, waiter) //nolint:contextcheck // what a worker does runs in the worker's context
		w.cfg.Recorder.Eventf(pod, v1.EventTypeWarning, events.ExceededGracePeriod, "Container runtime did not kill the pod within specified grace period.")
		return ErrKillTimeout
	case <-w.running.Done():
		return ErrStopped
	case <-ctx.Done():
		w.withdraw(pod, waiter) //nolint:contextcheck // what a worker does runs in the worker's context
		return fmt.Errorf("waiting to kill pod: %w", context.Cause(ctx))
	}
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

// withdraw takes a waiter back, so that those who gave up do not pile up on a pod that cannot be killed.
func (w *Workers) withdraw(pod *v1.Pod, waiter podlifecycle.WaiterID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters.withdraw(waiter)
	if p, known := w.workers[pod.UID]; known {
		w.step(p, podlifecycle.WaiterLeft{Waiter: waiter}, consequences{})
	}
}
