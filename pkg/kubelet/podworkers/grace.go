package podworkers

import "time"

// maxGrace in seconds bounds what is reckoned with: a hundred years.
const maxGrace = 100 * 365 * 24 * 60 * 60

// granted is the accepted grace period of a pod. It belongs to Workers.mu like the rest of the worker.
type granted struct {
	// grace in seconds, 0 as long as none was accepted. It only shrinks.
	grace int64
	// deadline is when it is over; it only moves earlier.
	deadline time.Time
}

// grant takes over what the lifecycle has accepted.
func (g *granted) grant(seconds int64, now time.Time) {
	if seconds == 0 || g.grace != 0 && seconds >= g.grace {
		return
	}
	deadline := now.Add(time.Duration(min(seconds, maxGrace)) * time.Second)
	if g.grace == 0 || deadline.Before(g.deadline) {
		g.deadline = deadline
	}
	g.grace = seconds
}

// shortened is true when a grace period in seconds has become shorter; 0 is none.
func shortened(before, after int64) bool { return before != 0 && after < before }
