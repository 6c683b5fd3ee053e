package eviction

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// agentClock is the source of all times of the manager. They are on one monotonic clock and are plain values. Events
// and logs show them by the wall clock, which may be set at any time.
type agentClock struct {
	clock clock.PassiveClock
	// start is the time at which the clock was created, as clock returned it; base is the same by the wall clock.
	start, base time.Time
}

// moment is one instant by both clocks.
type moment struct{ taken, wallTime time.Time }

func newAgentClock(c clock.PassiveClock) agentClock {
	start := c.Now()
	return agentClock{clock: c, start: start, base: snapshot.WallTime(start)}
}

// now returns the time by the monotonic clock: the wall time of the start, and the monotonic time that has passed
// since. It has no monotonic reading, so that nothing is lost when it is written. It equals the wall time until the
// wall clock is set.
func (c *agentClock) now() time.Time { return c.monotonic(c.clock.Now()) }

// moment returns the present instant by both clocks.
func (c *agentClock) moment() moment {
	now := c.clock.Now()
	return moment{taken: c.monotonic(now), wallTime: snapshot.WallTime(now)}
}

func (c *agentClock) monotonic(t time.Time) time.Time { return c.base.Add(t.Sub(c.start)) }
