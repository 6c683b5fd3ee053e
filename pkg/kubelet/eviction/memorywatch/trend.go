package memorywatch

import "time"

// trendWindow is the time after which less growth than leastGrowth counts as that and not as a lag of the counters.
const trendWindow = 250 * time.Millisecond

// trend is how fast memory is used up, of the node or of all pods together. The zero value has observed nothing.
type trend struct {
	// left was available at a time, the last from which the rate was computed.
	left int64
	at   time.Time
	// lagLeft was available at lagAt, the last time since then at which less than leastGrowth had been used up; zero if
	// there was none.
	lagLeft int64
	lagAt   time.Time
	// grewAt is when growth was last observed.
	grewAt time.Time
	// rate is in bytes per second; zero or less if nothing is used up.
	rate float64
}

// observe completes the rate by what is available at a time. Growth that may be the lag of the counters only bounds the
// rate from above. Growth may have begun just before it is observed: the rate since the last time at which there was
// none counts if it is greater. What is freed less than trendWindow after growth leaves the rate as it is: one process
// may end while another one grows on.
func (t *trend) observe(left int64, at time.Time) {
	used, window := t.left-left, at.Sub(t.at)
	switch {
	case t.at.IsZero() || window > lookWindow:
		t.rate = 0
	case window < leastWindow:
		return
	case max(used, -used) < leastGrowth && window < trendWindow:
		t.rate = min(t.rate, float64(2*leastGrowth)/window.Seconds())
		t.lagLeft, t.lagAt = left, at
		return
	case used < 0 && t.rate > 0 && at.Sub(t.grewAt) < trendWindow:
	default:
		if used > 0 {
			t.grewAt = at
		}
		t.rate = float64(used) / window.Seconds()
		since, grown := at.Sub(t.lagAt), t.lagLeft-left
		if !t.lagAt.IsZero() && since >= leastWindow && grown >= leastGrowth {
			t.rate = max(t.rate, float64(grown)/since.Seconds())
		}
	}
	t.left, t.at, t.lagLeft, t.lagAt = left, at, 0, time.Time{}
}

// timeFor returns the time in which an amount is used up at this rate, zero if it is not.
func (t *trend) timeFor(amount int64) time.Duration {
	if t.rate <= 0 || amount < 0 {
		return 0
	}
	seconds := min(float64(amount)/t.rate, time.Hour.Seconds())
	return max(1, time.Duration(seconds*float64(time.Second)))
}
