package podworkers

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// eventHastened is the reason of the event of a pod that was terminating already and is to end sooner, for an eviction.
const eventHastened = "TerminationHastened"

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

// shortened is true if the grace period was longer before; 0 is none.
func (g *granted) shortened(before int64) bool { return before != 0 && g.grace < before }

// noteHastened tells users of a pod that was terminating already, with the given grace period, and is asked to die sooner by an eviction.
func (w *Workers) noteHastened(p *worker, update *Update, earlier int64) {
	if update.Pod == nil || update.Kill == nil || !update.Kill.Evict || !p.shortened(earlier) {
		return
	}
	w.cfg.Recorder.Eventf(update.Pod, v1.EventTypeNormal, eventHastened,
		"The pod is terminating already; its grace period is shortened from %d to %d seconds by an eviction", earlier, p.grace)
}
