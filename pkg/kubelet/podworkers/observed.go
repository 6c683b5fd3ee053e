package podworkers

import (
	"sync/atomic"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// observation is the data of a worker for Views and Collector. Nothing else depends on it. Its fields are guarded by
// Workers.mu, except for step.
type observation struct {
	// step is the last step of the operation in progress, nil if there is no operation.
	step atomic.Pointer[string]
	// began is when the operation in progress began, or the last one.
	began   time.Time
	failure failure
	// phase is the pod's phase after the last event.
	phase podlifecycle.Phase
}

// Names of operations before their first step.
const (
	stepStatus     = "status from the runtime"
	stepRuntimePod = "stop what the runtime runs"
)

// waitReasons are what an operation waits for in steps that may block. For other steps the view shows the step's name.
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

// setStep records the step of the operation in progress. It may be called from any goroutine.
func (o *observation) setStep(step string) { o.step.Store(&step) }

// beginOperation records the first step of an operation.
func (o *observation) beginOperation(op podlifecycle.Operation) {
	if op == podlifecycle.OpTerminateRuntime {
		o.setStep(stepRuntimePod)
		return
	}
	o.setStep(stepStatus)
}

// endOperation records how an operation ended; message is the shortened text of its error.
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

// observe is called with every state of the pod. It records the duration of a termination at its end, unless the
// termination never began because the pod never ran.
func (p *worker) observe(s podlifecycle.State, now time.Time) {
	if s.Operation != podlifecycle.OpNone && p.observed.step.Load() == nil {
		p.observed.began = now
	}
	if p.observed.phase == podlifecycle.Terminating && s.Phase > podlifecycle.Terminating && s.Termination.Begun {
		observeTermination(s.Termination.Cause, s.Times.Terminated.Sub(s.Times.Requested))
	}
	p.observed.phase = s.Phase
}

// waitReason returns what the worker waits for, empty if nothing. It is shown by /debug/pods.
func (p *worker) waitReason(s podlifecycle.State, blocked string) string {
	switch step := p.observed.step.Load(); {
	case s.Operation == podlifecycle.OpSync && s.TerminationRequested():
		return "the running sync to end"
	case s.Operation != podlifecycle.OpNone && step != nil:
		if known, ok := waitReasons[*step]; ok {
			return known
		}
		return *step
	case s.Operation != podlifecycle.OpNone:
		return "" // the operation is just beginning or ending
	case blocked != "":
		return blocked
	case s.Pending:
		return "its turn"
	case s.Phase < podlifecycle.Finished && p.observed.failure.count > 0:
		return "the next try"
	case s.Phase == podlifecycle.Finished:
		return "the pod to leave the configuration"
	}
	return ""
}
