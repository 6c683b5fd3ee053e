package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// minClear is the shortest time for which a signal must be clear until the grace clock of its threshold is reset.
const minClear = 30 * time.Second

type clockState uint8

const (
	neverSeen clockState = iota
	blind
	clear
	met
)

// clock follows one threshold from look to look.
//
// The grace clock runs between two looks that both found the threshold met. It pauses while the signal is clear or missing, so
// that a single good sample does not save a pod that has been over the line for an hour (D16 of the list of stock's defects).
// It goes back to zero when the signal was clear for max(30 s, grace/4), at once when it is clear by the minimum reclaim too,
// and at once when it is clear after the threshold has evicted: then the eviction has done what it was for.
type clock struct {
	signal snapshot.Signal
	soft   bool

	state clockState
	// looked is the time of the last look.
	looked time.Time
	// known is the last state that was not blind.
	known clockState
	// elapsed is how much of the grace period is used up; clearFor how long the signal has been clear.
	elapsed, clearFor time.Duration
	// active: met, and the grace period is over.
	active bool
	// acted: it evicted a pod since it became active.
	acted bool
	// blindSince is when the signal was first missing, zero while it is there.
	blindSince time.Time
}

func newClock(t *Threshold) clock { return clock{signal: t.Signal, soft: t.Soft} }

// step is the clock after one more look.
func (c clock) step(t *Threshold, o snapshot.Observation, now time.Time) clock {
	since := max(0, now.Sub(c.looked))
	before := c.state
	c.looked = now
	if !o.Known() {
		return c.missing(now)
	}
	c.blindSince = time.Time{}
	if t.met(o, c.active) {
		if before == met {
			c.elapsed += since
		}
		c.state, c.known, c.clearFor = met, met, 0
		c.active = c.elapsed >= t.GracePeriod
		return c
	}
	if before == clear {
		c.clearFor += since
	}
	c.state, c.known, c.active = clear, clear, false
	resolved := t.MinReclaim != nil && t.target(o.Capacity) > t.floor(o.Capacity) && !t.met(o, true)
	if c.acted || resolved || c.clearFor >= max(minClear, t.GracePeriod/4) {
		c.elapsed, c.acted = 0, false
	}
	return c
}

// missing keeps what is known. Nothing is evicted for a signal that is not there, so the clock is not active, but a threshold
// that was met continues as met when the signal is back.
func (c clock) missing(now time.Time) clock {
	c.state = blind
	if c.blindSince.IsZero() {
		c.blindSince = now
	}
	return c
}

// pressing tells whether the node condition should be True because of this threshold: it is met, or it was when it was last
// seen and nobody knows whether it still is.
func (c clock) pressing() bool {
	return c.state == met || (c.state == blind && c.known == met)
}

// acts tells whether the threshold may evict now.
func (c clock) acts() bool { return c.state == met && c.active }

// remaining is how much of the grace period is left while the threshold is met.
func (c clock) remaining(t *Threshold) time.Duration { return max(0, t.GracePeriod-c.elapsed) }
