package escalation

import "time"

// Limits are the times of the steps. None may be negative; Margin and RepeatPeriod must be positive.
type Limits struct {
	// Slack is the time that a normal stop takes in addition to the grace period: a container gets two seconds even if
	// its preStop hook has used up the grace period, and the runtime manager counts in whole seconds.
	Slack time.Duration
	// Margin is how much longer than that the runtime may take before the pod is overdue. It is also the unit of the
	// times between the steps.
	Margin time.Duration
	// SilentDelay delays the steps for a runtime that does not answer. It is as long as the default timeout of requests
	// to the runtime.
	SilentDelay time.Duration
	// RepeatPeriod is the time between two reports after all steps were taken.
	RepeatPeriod time.Duration
}

// DefaultLimits returns the limits that the agent uses. The margin equals the minimum time that the sender of a kill
// request waits in addition to the grace period (package podworkers).
func DefaultLimits() Limits {
	return Limits{
		Slack: 3 * time.Second, Margin: 10 * time.Second, SilentDelay: 2 * time.Minute, RepeatPeriod: 30 * time.Second,
	}
}

// Longest returns the time from the end of a grace period to the first report, if each step is taken as soon as
// possible and the grace period does not begin again because a silent runtime answers.
func (l Limits) Longest() time.Duration { return l.Slack + l.SilentDelay + 3*l.Margin }
