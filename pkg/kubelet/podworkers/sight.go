package podworkers

import (
	"sync/atomic"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// sight is what is noted of a worker for those who look at it (Views, Collector). Nothing depends on it. It belongs to Workers.mu but for step.
type sight struct {
	// step is what the present operation does, as it told last; nil while there is none.
	step atomic.Pointer[string]
	// began is when the present operation did, or the last one.
	began   time.Time
	failure failure
	// phase is the one the pod was in when it was noted last.
	phase podlifecycle.Phase
}

// Steps that are not podsync's.
const (
	stepStatus     = "status from the runtime"
	stepRuntimePod = "stop what the runtime runs"
)

// words say what is waited for in the steps that may take long, or may wait for ever. Of the others the name says enough.
var words = map[string]string{
	stepStatus:                            "status from the runtime",
	stepRuntimePod:                        "containers to stop",
	"kill containers":                     "containers to stop",
	"verify that containers have stopped": "containers to stop",
	"unprepare dynamic resources":         "devices to be given back",
	"await unmount":                       "volumes to unmount",
	"await removal of volume paths":       "volumes to unmount",
	"destroy cgroup":                      "processes of the cgroup to end",
	"await volumes":                       "volumes to mount",
	"run containers":                      "images and containers",
}

// does notes what the present operation does.
func (s *sight) does(step string) { s.step.Store(&step) }

// begins notes that an operation does.
func (s *sight) begins(op podlifecycle.Operation) {
	if op == podlifecycle.OpTerminateRuntime {
		s.does(stepRuntimePod)
		return
	}
	s.does(stepStatus)
}

// concluded notes how an operation ended; message is what is kept of the error when it failed.
func (p *worker) concluded(outcome podlifecycle.Outcome, message string, now time.Time) {
	p.step.Store(nil)
	switch outcome {
	case podlifecycle.Failed:
		p.failure = failure{at: now, message: message, count: p.failure.count + 1}
	case podlifecycle.Cancelled:
	default:
		p.failure.count = 0
	}
}

// note sees every state of the pod, and counts a termination when it is over. Those that never began, of pods that never ran, do not count.
func (p *worker) note(s podlifecycle.State, now time.Time) {
	if s.Doing != podlifecycle.OpNone && p.step.Load() == nil {
		p.began = now
	}
	if p.phase == podlifecycle.Terminating && s.Phase > podlifecycle.Terminating && s.Termination.Begun {
		observeTermination(s.Termination.Cause, s.Times.Terminated.Sub(s.Times.Requested))
	}
	p.phase = s.Phase
}

// waitsFor says what has to happen before the worker goes on.
func (p *worker) waitsFor(s podlifecycle.State, blocked bool) string {
	switch step := p.step.Load(); {
	case s.Doing == podlifecycle.OpSync && s.TerminationRequested():
		return "the running sync to end"
	case s.Doing != podlifecycle.OpNone && step != nil:
		if known, ok := words[*step]; ok {
			return known
		}
		return *step
	case s.Doing != podlifecycle.OpNone:
		return "" // it is just beginning or ending
	case blocked:
		return "another pod of the same full name"
	case s.Pending:
		return "its turn"
	case s.Phase < podlifecycle.Finished && p.failure.count > 0:
		return "the next try"
	case s.Phase == podlifecycle.Finished:
		return "the pod to leave the configuration"
	}
	return ""
}
