package escalation

import (
	"fmt"
	"time"
)

// Step is an action on an overdue pod. Steps are taken in ascending order.
type Step uint8

const (
	// None is the step of a pod that is not overdue.
	None Step = iota
	// Warn sends an event that the pod is overdue.
	Warn
	// KillByRuntime requests from the runtime that it kills the running containers, with a grace period of 0,
	// concurrently with the request in flight.
	KillByRuntime
	// StopSandbox requests from the runtime that it stops the whole sandbox. It comes after KillByRuntime, and is taken
	// only while containers run: otherwise such a request is in flight already, and network plugins must not be called
	// concurrently for one sandbox (CNI specification, "runtimes must not invoke parallel operations for the same
	// container").
	StopSandbox
	// KillCgroup kills all processes in the cgroup of the pod, without the runtime.
	KillCgroup
	// Report sends an event with the remaining containers and processes. When it is repeated, it kills them again.
	Report
)

var stepNames = [...]string{"None", "Warn", "KillByRuntime", "StopSandbox", "KillCgroup", "Report"}

// String returns the name of the step, which logs and /debug/pods show.
func (s Step) String() string {
	if int(s) < len(stepNames) {
		return stepNames[s]
	}
	return fmt.Sprintf("Step(%d)", uint8(s))
}

// Progress is the last step that was taken for a pod, and when.
type Progress struct {
	Step Step
	At   time.Time
}

// Next returns the step after the last one, and the earliest time for it. Report is followed by Report.
func (l Limits) Next(g GracePeriod, p Progress) (Step, time.Time) {
	next := min(p.Step+1, Report)
	at := l.Due(g).Add(l.Margin)
	if next > Warn && !g.Reached {
		at = at.Add(l.SilentDelay)
	}
	switch next {
	case StopSandbox:
		at = at.Add(l.Margin / 2)
	case KillCgroup:
		at = at.Add(l.Margin)
	case Report:
		at = at.Add(2 * l.Margin)
	default: // the other steps are taken as soon as the pod is overdue
	}
	if earliest := p.At.Add(l.pause(p.Step)); earliest.After(at) {
		at = earliest
	}
	return next, at
}

// pause returns the minimum time between a step and the next one: killed processes get time to end before they are
// reported as stuck, also when the steps are taken late.
func (l Limits) pause(s Step) time.Duration {
	switch s {
	case KillCgroup:
		return l.Margin
	case Report:
		return l.RepeatPeriod
	default:
		return 0
	}
}

// Applies returns whether the step can have an effect in this state of the pod. If not, the caller skips it and
// continues with the next one.
func (s Step) Applies(f Facts) bool {
	switch s {
	case KillByRuntime, StopSandbox:
		return f.Silent || len(f.Running) > 0
	case KillCgroup:
		return f.mayKillCgroup()
	case Warn:
		return true // if nothing else is left, the sandbox is not stopped in time
	case Report:
		return f.Silent || len(f.Running) > 0 || len(f.Processes) > 0 || f.ProcessesErr != nil
	default:
		return false
	}
}
