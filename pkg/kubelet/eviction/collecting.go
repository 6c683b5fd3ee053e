package eviction

import (
	"context"
	"errors"
	"time"
)

const (
	// collectPatience is how long a collection may take until its figures count as missing; silentPatience is the same when they were
	// missing last time.
	collectPatience = 15 * time.Second
	silentPatience  = time.Second
	// collectAtMost is when a collection is given up, as if the summary had failed: what one request to the container runtime may take by
	// default. A collection makes half a dozen, and each of them waits that long for a runtime that hangs. One that is slow is not cut short.
	collectAtMost = 2 * time.Minute
	// besidePatience is how long it may take to get what needs no runtime, until only memory is looked at.
	besidePatience = 5 * time.Second
)

var errCollecting = errors.New("figures are still being collected")

// collecting is what is under way to get figures: one collection at most, and one beside it when it hangs. It belongs to the loop.
type collecting struct {
	// since, beside are when they were begun; zero while none is under way. took is how long the last collection took.
	since, beside time.Time
	took          time.Duration
	// silent: in the end nobody told what pods use. So it is known that there is not much to wait for.
	silent bool
	// atMost is how long a collection may take. patient is the context of all of them, until one is given up: so nothing has to be made for
	// each.
	atMost  time.Duration
	patient context.Context
	giveUp  context.CancelFunc
}

func (c *collecting) underWay() bool { return !c.since.IsZero() }

// begin is the beginning of a collection, and the context for it.
func (c *collecting) begin(ctx context.Context, now time.Time) context.Context {
	c.since = now
	if c.patient == nil || c.patient.Err() != nil {
		c.patient, c.giveUp = context.WithCancel(ctx)
	}
	return c.patient
}

func (c *collecting) ended(now time.Time) { c.took, c.since = now.Sub(c.since), time.Time{} }

// bound gives a collection up that takes too long. What does not heed its context goes on.
func (c *collecting) bound(now time.Time) {
	if now.Sub(c.since) >= c.atMost {
		c.giveUp()
	}
}

func (c *collecting) patience() time.Duration {
	if c.silent {
		return silentPatience
	}
	return collectPatience
}

// overdue tells whether a collection is under way for so long that the loop looks on without it.
func (c *collecting) overdue(now time.Time) bool {
	return c.underWay() && now.Sub(c.since) >= c.patience()
}

// until is when there is something to do about a collection that is under way, while the next look is due at next.
func (c *collecting) until(next time.Time) time.Time {
	t := later(next, c.since.Add(c.patience()))
	if !c.beside.IsZero() {
		t = later(t, c.beside.Add(besidePatience))
	}
	if end := c.since.Add(c.atMost); c.patient.Err() == nil && end.Before(t) {
		return end
	}
	return t
}

// collect begins a collection.
func (m *Manager) collect(ctx context.Context, now time.Time) {
	l := &m.loop
	q := question{scarce: l.gate != nil && l.gate.near(), how: m.options.Load().counting(), rules: l.rules}
	patient := l.collecting.begin(ctx, now)
	m.work.Go(func() { l.collector.results <- l.collector.collect(patient, q) })
}

// lookBeside looks on while a collection hangs: at what needs no container runtime, and if even that hangs, at memory.
func (m *Manager) lookBeside(ctx context.Context, now time.Time) {
	l := &m.loop
	switch {
	case l.collecting.beside.IsZero():
		l.collecting.beside = now
		q := question{how: m.options.Load().counting(), layout: l.layout}
		m.work.Go(func() { l.collector.besides <- l.collector.beside(ctx, q) })
	case now.Sub(l.collecting.beside) >= besidePatience:
		m.lookAt(ctx, m.memoryOnly(now))
	}
}

// memoryOnly is what can be known while nothing else comes.
func (m *Manager) memoryOnly(now time.Time) figures {
	f := figures{taken: now, err: errCollecting, layout: m.loop.layout, silent: true}
	if m.config.Memory != nil {
		r := m.config.Memory.ReadMemory(m.options.Load().counting())
		f.memory = &r
	}
	return f
}

// lookAt looks at figures that were collected. They stay for looks that are caused by memory only: what was not seen now is not known.
func (m *Manager) lookAt(ctx context.Context, f figures) {
	m.loop.last, m.loop.collecting.silent = f, f.silent
	m.look(ctx, f)
}
