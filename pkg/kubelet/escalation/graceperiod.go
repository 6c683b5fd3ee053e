package escalation

import "time"

// GracePeriod is the grace period of a termination, over all attempts to stop the pod. The zero value is that of a pod
// that is not terminating.
type GracePeriod struct {
	// Since is when the first attempt to stop the pod began.
	Since time.Time
	// End is the end of the grace period. It never becomes later, except at the first attempt that reaches the runtime:
	// the grace period begins with that attempt.
	End time.Time
	// Reached is true once the runtime has answered an attempt.
	Reached bool
}

// Attempt returns the grace period after another attempt, at time now, to stop the pod within grace. reached is true if
// the runtime has answered it.
func (g GracePeriod) Attempt(now time.Time, grace time.Duration, reached bool) GracePeriod {
	end := now.Add(grace)
	switch {
	case g.Since.IsZero():
		if !g.End.IsZero() && g.End.Before(end) {
			end = g.End
		}
		return GracePeriod{Since: now, End: end, Reached: reached}
	case reached && !g.Reached:
		return GracePeriod{Since: g.Since, End: end, Reached: true}
	}
	return g.Shorten(end)
}

// Shorten returns the grace period with an earlier end. A later end is ignored. It may be called before the first
// attempt.
func (g GracePeriod) Shorten(end time.Time) GracePeriod {
	if g.End.IsZero() || end.Before(g.End) {
		g.End = end
	}
	return g
}

// Due returns the time by which a runtime that works normally has stopped the containers.
func (l Limits) Due(g GracePeriod) time.Time { return g.End.Add(l.Slack) }
