package escalation

import (
	"fmt"
	"time"
)

// Rung is one thing that is done about an overdue pod.
type Rung uint8

const (
	// Ground is where every pod stands that is not overdue.
	Ground Rung = iota
	// Tell says in an event that the pod is overdue.
	Tell
	// KillByRuntime has the runtime kill the containers, without any grace, beside the call that is in flight.
	KillByRuntime
	// StopSandbox has the runtime stop the whole sandbox. It comes after KillByRuntime, and only while containers run:
	// otherwise such a call is in flight already, and network plugins are not to be called twice for one sandbox at once
	// (CNI specification, "runtimes must not invoke parallel operations for the same container").
	StopSandbox
	// KillCgroup kills every process in the cgroup of the pod, past the runtime.
	KillCgroup
	// Report says in an event what is left. Each time it is reached again, what can be killed is killed again.
	Report
)

var rungNames = [...]string{"Ground", "Tell", "KillByRuntime", "StopSandbox", "KillCgroup", "Report"}

func (r Rung) String() string {
	if int(r) < len(rungNames) {
		return rungNames[r]
	}
	return fmt.Sprintf("Rung(%d)", uint8(r))
}

// Climbed is how far up the ladder a pod is, and since when.
type Climbed struct {
	Rung Rung
	At   time.Time
}

// Next is the rung above, and when it is to be climbed at the earliest. Above Report there is Report.
func (l Limits) Next(t Term, c Climbed) (Rung, time.Time) {
	up := min(c.Rung+1, Report)
	at := l.Due(t).Add(l.Margin)
	if up > Tell && !t.Reached {
		at = at.Add(l.Absence)
	}
	switch up {
	case StopSandbox:
		at = at.Add(l.Margin / 2)
	case KillCgroup:
		at = at.Add(l.Margin)
	case Report:
		at = at.Add(2 * l.Margin)
	default: // the others are climbed as soon as the pod is overdue
	}
	if earliest := c.At.Add(l.pause(c.Rung)); earliest.After(at) {
		at = earliest
	}
	return up, at
}

// pause is the least time between a rung and the next: what was killed gets time to end before it is called stuck, also
// where the ladder is climbed late.
func (l Limits) pause(r Rung) time.Duration {
	switch r {
	case KillCgroup:
		return l.Margin
	case Report:
		return l.Again
	default:
		return 0
	}
}

// Applies says whether the rung is of use with these facts. A rung that is not is passed by.
func (r Rung) Applies(f Facts) bool {
	switch r {
	case KillByRuntime, StopSandbox:
		return f.Silent || len(f.Running) > 0
	case KillCgroup:
		return f.mayKillCgroup()
	case Tell, Report:
		return true
	default:
		return false
	}
}
