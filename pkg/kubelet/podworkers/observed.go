package podworkers

import (
	"sync/atomic"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// observation is what Views and Collector show of a worker. Nothing else depends on it. Its fields are guarded by
// Workers.mu, except for step.
type observation struct {
	// step is what the present operation does, as it told last; nil while there is none.
	step atomic.Pointer[string]
	// began is when the present operation did, or the last one.
	began   time.Time
	failure failure
	// phase is the one the pod was in when it was noted last.
	phase podlifecycle.Phase
}

// Names of operations before their first step.
const (
	stepStatus     = "status from the runtime"
	stepRuntimePod = "stop what the runtime runs"
)

// waitReasons are the reasons to wait in steps that may block. For other steps their name is shown.
var waitReasons = map[string]string{
	stepStatus:                     "status from the runtime",
	stepRuntimePod:                 "containers to stop",
	podsync.StepKillContainers:     "containers to stop",
	podsync.StepVerifyStopped:      "containers to stop",
	podsync.StepUnprepareResources: "devices to be given back",
	podsync.StepAwaitUnmount:       "volumes to unmount",
	podsync.StepAwaitVolumePaths:   "volumes to unmount",
	podsync.StepDestroyCgroup:      "processes of the cgroup to end",
	podsync.StepAwaitVolumes:       "volumes to mount",
	podsync.StepRunContainers:      "images and containers",
}

// does notes what the present operation does.
func (o *observation) setStep(step string) { o.step.Store(&step) }

// begins notes that an operation does.
func (o *observation) beginOperation(op podlifecycle.Operation) {
	if op == podlifecycle.OpTerminateRuntime {
		o.setStep(stepRuntimePod)
		return
	}
	o.setStep(stepStatus)
}

// endOperation notes how an operation ended; message is what is kept of the error when it failed.
func (p *worker) endOperation(outcome podlifecycle.Outcome, message string, now time.Time) {
	p.observed.step.Store(nil)
	switch outcome {
	case podlifecycle.Failed:
		p.observed.failure = failure{at: now, message: message, count: p.observed.failure.count + 1}
	case podlifecycle.Cancelled:
	default:
		p.observed.failure.count = 0
	}
}

// observe sees every state of the pod, and counts a termination when it is over. Those that never began, of pods that
// never ran, do not count.
func (p *worker) observe(s podlifecycle.State, now time.Time) {
	if s.Doing != podlifecycle.OpNone && p.observed.step.Load() == nil {
		p.observed.began = now
	}
	if p.observed.phase == podlifecycle.Terminating && s.Phase > podlifecycle.Terminating && s.Termination.Begun {
		observeTermination(s.Termination.Cause, s.Times.Terminated.Sub(s.Times.Requested))
	}
	p.observed.phase = s.Phase
}

// waitReason says what has to happen before the worker goes on.
func (p *worker) waitReason(s podlifecycle.State, blocked bool) string {
	switch step := p.observed.step.Load(); {
	case s.Doing == podlifecycle.OpSync && s.TerminationRequested():
		return "the running sync to end"
	case s.Doing != podlifecycle.OpNone && step != nil:
		if known, ok := waitReasons[*step]; ok {
			return known
		}
		return *step
	case s.Doing != podlifecycle.OpNone:
		return "" // it is just beginning or ending
	case blocked:
		return "another pod of the same full name"
	case s.Pending:
		return "its turn"
	case s.Phase < podlifecycle.Finished && p.observed.failure.count > 0:
		return "the next try"
	case s.Phase == podlifecycle.Finished:
		return "the pod to leave the configuration"
	}
	return ""
}
