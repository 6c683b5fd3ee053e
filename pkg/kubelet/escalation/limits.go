package escalation

import "time"

// Limits are the times of the ladder. None may be negative; Margin and Again must be positive.
type Limits struct {
	// Slack is what a stop takes beside its grace period when everything is well: a container gets two seconds also when
	// its hook has used the grace period up, and the runtime manager counts in whole seconds.
	Slack time.Duration
	// Margin is what the runtime may take beyond that, and then what each rung gets to work.
	Margin time.Duration
	// Absence is what a runtime that does not answer gets in addition. It is as long as the default time-out of its
	// requests.
	Absence time.Duration
	// Again is the time between two attempts once every rung was climbed.
	Again time.Duration
}

// DefaultLimits are those of the agent. The margin equals the least time that whoever kills a pod waits for it.
func DefaultLimits() Limits {
	return Limits{Slack: 3 * time.Second, Margin: 10 * time.Second, Absence: 2 * time.Minute, Again: 30 * time.Second}
}

// Longest is the time from the end of a grace period to the last rung, when every rung is climbed as soon as it may
// be, and the grace period does not begin again because a runtime that was silent answers.
func (l Limits) Longest() time.Duration { return l.Slack + l.Absence + 3*l.Margin }
