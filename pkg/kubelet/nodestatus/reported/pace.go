package reported

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// burst is the number of writes that may follow each other at once.
const burst = 5

const (
	firstBackOff = time.Second
	maxBackOff   = 5 * time.Minute
)

// Pace limits writes: five at once, then one per interval. The zero value is ready for use.
type Pace struct {
	// spent is when all writes that were counted would have been made one per interval.
	spent time.Time
}

// Take counts a write that is made as soon as it may be, and returns how long after now that is. It must not be called
// again before that time. The interval may differ from call to call.
func (p *Pace) Take(now time.Time, interval time.Duration) time.Duration {
	wait := p.Wait(now, interval)
	p.spent = p.spent.Add(interval)
	return wait
}

// Wait returns what Take would return, without counting a write.
func (p *Pace) Wait(now time.Time, interval time.Duration) time.Duration {
	if p.spent.Before(now) {
		p.spent = now
	}
	if most := now.Add(burst * interval); p.spent.After(most) { // the interval was longer before
		p.spent = most
	}
	return max(0, p.spent.Sub(now)-(burst-1)*interval)
}

// BackOff returns the time from an error until the next attempt: 1 s, doubled with each error in a row up to 5 min, or
// what the API server asks for, up to 5 min as well. A request that was refused, as Refused says, is repeated after
// 5 min. Up to a fifth is subtracted at random (0 to 1), so that the agents of many nodes do not repeat their requests
// at the same time.
func BackOff(failures int, err error, random float64) time.Duration {
	d := firstBackOff
	for i := 1; i < failures && d < maxBackOff; i++ {
		d *= 2
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		d = max(d, time.Duration(seconds)*time.Second)
	}
	if Refused(err) {
		d = maxBackOff
	}
	d = min(d, maxBackOff)
	return d - time.Duration(random*float64(d)/5)
}

// Rejected reports whether an error is an answer of the API server by which the Node was certainly not changed. A
// time-out of the server itself is none.
func Rejected(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500
}

// Refused reports whether a repetition of a request can have no other result until somebody changes something.
func Refused(err error) bool {
	return Rejected(err) && !apierrors.IsConflict(err) && !apierrors.IsTooManyRequests(err) &&
		!apierrors.IsNotFound(err) && !apierrors.IsUnauthorized(err)
}
