package podsync

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

// Reasons of the events about pods that the runtime does not stop.
const (
	// ContainerStopOverdue: the grace period and what the runtime may take beyond it are over; the pod is about to be killed.
	ContainerStopOverdue = "ContainerStopOverdue"
	// SandboxStopOverdue: the same, and no container runs any more; it is the sandbox and its network that take so long.
	SandboxStopOverdue = "SandboxStopOverdue"
	// ContainerProcessesKilled: the processes in the pod's cgroup were killed past the runtime.
	ContainerProcessesKilled = "ContainerProcessesKilled"
	// ContainerStopStuck: everything was tried. The pod goes on terminating.
	ContainerStopStuck = "ContainerStopStuck"
)

// escalator watches over terminations and does what package escalation decides about those that are overdue.
type escalator struct {
	limits  escalation.Limits
	look    looker
	stopper ContainerStopper
	events  events
	ledger  *ledger
}

func newEscalator(c Config) *escalator {
	limits := c.Escalation
	if limits == (escalation.Limits{}) {
		limits = escalation.DefaultLimits()
	}
	return &escalator{
		limits:  limits,
		look:    looker{observer: c.Runtime, cgroups: newPodCgroups(c), timeout: limits.Margin / 2},
		stopper: c.Stopper, events: events{c.Recorder}, ledger: newLedger(),
	}
}

// target is a pod that is being killed.
type target struct {
	pod *v1.Pod
	// status is what the runtime last said.
	status *kubecontainer.PodStatus
	// orphan is true when only the runtime knows the pod, so that its specification says nothing.
	orphan bool
	// reached is true if the runtime has answered in this attempt.
	reached bool
}

// beside runs kill, which asks the runtime to stop the pod within grace, and climbs the ladder beside it while it does not return.
func (e *escalator) beside(ctx context.Context, t target, grace time.Duration, kill func(context.Context) error) error {
	w := e.watch(t)
	e.ledger.attempt(w.entry, time.Now(), grace, t.reached)
	err := w.during(ctx, kill)
	if err != nil && ctx.Err() == nil {
		w.catchUp(ctx)
	}
	return err
}

// after climbs what is due of a pod that runs although an attempt has returned without an error.
func (e *escalator) after(ctx context.Context, t target) { e.watch(t).catchUp(ctx) }

func (e *escalator) watch(t target) *watch {
	return &watch{escalator: e, target: t, entry: e.ledger.open(t.pod.UID), calls: calls{inFlight: map[string]bool{}}}
}

// watch is one attempt that is watched. It belongs to one goroutine.
type watch struct {
	*escalator
	target
	entry *entry
	calls calls
}

// during runs kill and climbs until it returns.
func (w *watch) during(ctx context.Context, kill func(context.Context) error) error {
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { w.run(watching) })
	// Deferred for the case of a panic: nobody must go on killing.
	defer func() {
		stop()
		watcher.Wait()
	}()
	return kill(ctx)
}

// catchUp climbs what is due now. A runtime may refuse so quickly that there is never time to climb beside it.
func (w *watch) catchUp(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, w.limits.Margin)
	defer done()
	defer w.calls.wait()
	for ctx.Err() == nil {
		rung, at := w.ledger.next(w.entry, w.limits)
		if at.After(time.Now()) {
			return
		}
		w.climb(ctx, rung)
	}
}

func (w *watch) run(ctx context.Context) {
	defer w.calls.wait()
	for {
		rung, at := w.ledger.next(w.entry, w.limits)
		timer := time.NewTimer(time.Until(at))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-w.entry.changed:
			timer.Stop()
		case <-timer.C:
			w.climb(ctx, rung)
		}
	}
}

// climb does what the rung is about, if that is of use.
func (w *watch) climb(ctx context.Context, rung escalation.Rung) {
	facts := w.look.at(ctx, &w.target)
	if ctx.Err() != nil {
		return
	}
	first, late := w.ledger.climb(w.entry, rung, facts, time.Now())
	if !rung.Applies(facts) {
		return
	}
	late = late.Round(time.Second)
	klog.FromContext(ctx).Info("Pod termination is overdue", "pod", klog.KObj(w.pod), "podUID", w.pod.UID, "since", late, "rung", rung, "left", facts.Summary())
	switch rung {
	case escalation.Tell:
		w.events.warn(ctx, w.pod, overdueReason(facts), "The container runtime has not stopped the pod %v after the end of its grace period: %s", late, facts.Summary())
	case escalation.KillByRuntime:
		w.killContainers(ctx)
	case escalation.StopSandbox:
		w.stopSandboxes(ctx)
	case escalation.KillCgroup:
		w.events.warn(ctx, w.pod, ContainerProcessesKilled, "Killing what is in the pod's cgroup, past the container runtime: %s", facts.Summary())
		w.killCgroup(ctx)
	case escalation.Report:
		w.report(ctx, facts, first)
	default: // on the ground there is nothing to do
	}
}

func overdueReason(facts escalation.Facts) string {
	if facts.Silent || len(facts.Running) > 0 {
		return ContainerStopOverdue
	}
	return SandboxStopOverdue
}

// report tells once what is left, and tries again.
func (w *watch) report(ctx context.Context, facts escalation.Facts, first bool) {
	if first {
		w.events.warn(ctx, w.pod, ContainerStopStuck, "The container runtime has still not stopped the pod, it goes on terminating: %s", facts.Summary())
	}
	if escalation.KillByRuntime.Applies(facts) {
		w.killContainers(ctx)
	}
	if escalation.KillCgroup.Applies(facts) {
		w.killCgroup(ctx)
	}
}
