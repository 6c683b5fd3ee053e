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

// Reasons of the events about overdue pods.
const (
	// ContainerStopOverdue: the grace period and the time that the runtime may need beyond it have expired; the agent is
	// about to kill the pod.
	ContainerStopOverdue = "ContainerStopOverdue"
	// SandboxStopOverdue: the same, but no container runs any more: the sandbox and its network are not stopped in time.
	SandboxStopOverdue = "SandboxStopOverdue"
	// ContainerProcessesKilled: the agent kills the processes in the pod's cgroup itself.
	ContainerProcessesKilled = "ContainerProcessesKilled"
	// ContainerStopStuck: all steps were taken. The pod is still terminating.
	ContainerStopStuck = "ContainerStopStuck"
)

// escalator takes the steps of package escalation for overdue pods.
type escalator struct {
	limits    escalation.Limits
	inspector inspector
	stopper   ContainerStopper
	events    events
	pods      *progressByPod
}

func newEscalator(c Config) *escalator {
	limits := c.Escalation
	if limits == (escalation.Limits{}) {
		limits = escalation.DefaultLimits()
	}
	return &escalator{
		limits:    limits,
		inspector: inspector{observer: c.Runtime, cgroups: newPodCgroups(c), timeout: limits.Margin / 2},
		stopper:   c.Stopper, events: events{c.Recorder}, pods: newProgressByPod(),
	}
}

// target is a pod that is being killed.
type target struct {
	pod *v1.Pod
	// status is the last status from the runtime.
	status *kubecontainer.PodStatus
	// runtimeOnly is true if the pod is known from the runtime only, so that its specification is incomplete.
	runtimeOnly bool
	// answered is true if the runtime has answered in this attempt.
	answered bool
}

// kill calls stop, which requests the stop of the pod from the runtime with the grace period, and takes escalation
// steps concurrently until it returns.
func (e *escalator) kill(ctx context.Context, t target, grace time.Duration, stop func(context.Context) error) error {
	w := e.watch(t)
	e.pods.beginAttempt(w.progress, time.Now(), grace, t.answered)
	err := w.kill(ctx, stop)
	if err != nil && ctx.Err() == nil {
		w.takeDueSteps(ctx)
	}
	return err
}

// takeDueSteps takes the steps that are due of a pod that runs although an attempt has returned without an error.
func (e *escalator) takeDueSteps(ctx context.Context, t target) { e.watch(t).takeDueSteps(ctx) }

func (e *escalator) watch(t target) *watch {
	return &watch{
		escalator: e, target: t, progress: e.pods.get(t.pod.UID), calls: calls{inFlight: map[string]bool{}},
	}
}

// watch observes one attempt to kill a pod. It is used by one goroutine.
type watch struct {
	*escalator
	target
	progress *progress
	calls    calls
}

// kill calls stop and takes steps until it returns.
func (w *watch) kill(ctx context.Context, stop func(context.Context) error) error {
	watching, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { w.run(watching) })
	// Deferred because stop may panic: the escalation must end in any case.
	defer func() {
		cancel()
		watcher.Wait()
	}()
	return stop(ctx)
}

// takeDueSteps takes the steps that are due now, in case the runtime fails so quickly that none is due during a call.
func (w *watch) takeDueSteps(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, w.limits.Margin)
	defer done()
	defer w.calls.wait()
	for ctx.Err() == nil {
		next, at := w.pods.next(w.progress, w.limits)
		if at.After(time.Now()) {
			return
		}
		w.take(ctx, next)
	}
}

func (w *watch) run(ctx context.Context) {
	defer w.calls.wait()
	for {
		next, at := w.pods.next(w.progress, w.limits)
		timer := time.NewTimer(time.Until(at))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-w.progress.changed:
			timer.Stop()
		case <-timer.C:
			w.take(ctx, next)
		}
	}
}

// take takes a step, if it applies to the state of the pod.
func (w *watch) take(ctx context.Context, next escalation.Step) {
	facts := w.inspector.inspect(ctx, &w.target)
	if ctx.Err() != nil {
		return
	}
	first, late := w.pods.record(w.progress, next, facts, time.Now())
	if !next.Applies(facts) {
		return
	}
	late = late.Round(time.Second)
	klog.FromContext(ctx).Info("Pod termination is overdue", "pod", klog.KObj(w.pod), "podUID", w.pod.UID,
		"overdueFor", late, "step", next, "remaining", facts.Summary())
	switch next {
	case escalation.Warn:
		w.events.warn(ctx, w.pod, overdueReason(facts),
			"The container runtime has not stopped the pod %v after the end of its grace period: %s", late, facts.Summary())
	case escalation.KillByRuntime:
		w.killContainers(ctx)
	case escalation.StopSandbox:
		w.stopSandboxes(ctx)
	case escalation.KillCgroup:
		w.events.warn(ctx, w.pod, ContainerProcessesKilled,
			"Killing the processes in the pod's cgroup without the container runtime: %s", facts.Summary())
		w.killCgroup(ctx)
	case escalation.Report:
		w.report(ctx, facts, first)
	default: // no other step has an effect
	}
}

func overdueReason(facts escalation.Facts) string {
	if facts.Silent || len(facts.Running) > 0 {
		return ContainerStopOverdue
	}
	return SandboxStopOverdue
}

// report sends one event with the remaining containers and processes, and repeats the attempts to kill them.
func (w *watch) report(ctx context.Context, facts escalation.Facts, first bool) {
	if first {
		w.events.warn(ctx, w.pod, ContainerStopStuck,
			"The container runtime has still not stopped the pod, its termination continues: %s", facts.Summary())
	}
	if escalation.KillByRuntime.Applies(facts) {
		w.killContainers(ctx)
	}
	if escalation.KillCgroup.Applies(facts) {
		w.killCgroup(ctx)
	}
}
