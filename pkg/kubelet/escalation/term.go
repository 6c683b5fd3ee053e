package escalation

import "time"

// Term is how long the containers of a pod may go on. The zero value is that of a pod that nobody has asked to stop.
type Term struct {
	// Since is when the first attempt to stop the pod began.
	Since time.Time
	// End is when the grace period is over. It never becomes later, but for the first attempt that reaches the runtime:
	// with that the grace period begins.
	End time.Time
	// Reached is true once the runtime has answered an attempt.
	Reached bool
}

// Attempt is the term with one more attempt to stop the pod within grace. reached says that the runtime has answered
// it.
func (t Term) Attempt(now time.Time, grace time.Duration, reached bool) Term {
	end := now.Add(grace)
	switch {
	case t.Since.IsZero():
		if !t.End.IsZero() && t.End.Before(end) {
			end = t.End
		}
		return Term{Since: now, End: end, Reached: reached}
	case reached && !t.Reached:
		return Term{Since: t.Since, End: end, Reached: true}
	}
	return t.Shorten(end)
}

// Shorten is the term with an earlier end; a later one is ignored. It may come before the first attempt.
func (t Term) Shorten(end time.Time) Term {
	if t.End.IsZero() || end.Before(t.End) {
		t.End = end
	}
	return t
}

// Due is when the containers should have stopped, whatever happens to them while all is well.
func (l Limits) Due(t Term) time.Time { return t.End.Add(l.Slack) }
