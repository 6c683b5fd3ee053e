package eviction

import (
	"context"
	"errors"
	"time"
)

const (
	// collectPatience is how long a collection may take until the loop looks on without it, and how long the
	// container runtime may answer nothing until it counts as silent. shortPatience is the former when the last
	// collection took longer too, and both when the runtime was silent last time.
	collectPatience = 15 * time.Second
	shortPatience   = time.Second
	// slower is how many times as long as it took for its slowest answer last time a runtime may take for the next one.
	slower = 2
	// collectAtMost is for how long the runtime may answer nothing until a collection is given up, as if the summary
	// had failed: what one request may take by default. However long it takes, a collection that gets answers is not
	// cut short.
	collectAtMost = 2 * time.Minute
	// besidePatience is how long it may take to get what needs no runtime, until only memory is looked at.
	besidePatience = 5 * time.Second
)

var errCollecting = errors.New("figures are still being collected")

// collecting is what is under way to get figures: one collection at most, and one beside it when it takes long. It
// belongs to the loop.
type collecting struct {
	// since, beside are when they were begun; zero while none is under way. took is how long the last collection took.
	since, beside time.Time
	took          time.Duration
	// progress are the answers to the collection that is under way, slowest is how long the runtime was silent at
	// most during the last one that was complete.
	progress progress
	slowest  time.Duration
	// silent: in the end nobody told what pods use. So it is known that there is not much to wait for.
	silent bool
	// atMost is how long the runtime may answer nothing. patient is the context of all collections, until one is
	// given up: so nothing has to be made for each.
	atMost  time.Duration
	patient context.Context
	giveUp  context.CancelFunc
}

func (c *collecting) underWay() bool { return !c.since.IsZero() }

// begin is the beginning of a collection, and the context for it.
func (c *collecting) begin(ctx context.Context, now time.Time) context.Context {
	c.since = now
	c.progress.begin(now)
	if c.patient == nil || c.patient.Err() != nil {
		c.patient, c.giveUp = context.WithCancel(WithAnswers(ctx, c.progress.answered))
	}
	return c.patient
}

// ended notes the end of the collection; complete tells whether the runtime has answered everything.
func (c *collecting) ended(now time.Time, complete bool) {
	c.took, c.since = now.Sub(c.since), time.Time{}
	if last, longest := c.progress.view(); complete {
		c.slowest = max(longest, now.Sub(last))
	}
}

// bound gives a collection up that gets no answer any more. What does not heed its context goes on.
func (c *collecting) bound(now time.Time) {
	if last, _ := c.progress.view(); now.Sub(last) >= c.atMost {
		c.giveUp()
	}
}

// patience is how long the loop waits for a collection before it looks on without.
func (c *collecting) patience() time.Duration {
	if c.silent || c.took >= collectPatience {
		return shortPatience
	}
	return collectPatience
}

// overdue tells whether a collection is under way for so long that the loop looks on without it.
func (c *collecting) overdue(now time.Time) bool {
	return c.underWay() && now.Sub(c.since) >= c.patience()
}

// isSilent tells whether the runtime leaves the collection without an answer for longer than a slow one would.
func (c *collecting) isSilent(now time.Time) bool {
	patience := max(collectPatience, slower*c.slowest)
	if c.silent {
		patience = shortPatience
	}
	last, _ := c.progress.view()
	return now.Sub(last) >= patience
}

// until is when there is something to do about a collection that is under way, while the next look is due at next.
func (c *collecting) until(next time.Time) time.Time {
	t := later(next, c.since.Add(c.patience()))
	if !c.beside.IsZero() {
		t = later(t, c.beside.Add(besidePatience))
	}
	last, _ := c.progress.view()
	if end := last.Add(c.atMost); c.patient.Err() == nil && end.Before(t) {
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

// lookBeside looks on while a collection takes long: at what needs no container runtime, and if even that hangs, at
// memory.
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
	f := figures{moment: m.clock.moment(), err: errCollecting, layout: m.loop.layout}
	m.missing(&f, now)
	if m.config.Memory != nil {
		r := m.config.Memory.ReadMemory(m.options.Load().counting())
		f.memory = &r
	}
	return f
}

// missing says why figures of the runtime are not among those of a look beside a collection: it is silent, or it is
// slow. While it is slow the last ones stand in, which are as old as they say, so that conditions hold and nothing
// else is done because of them.
func (m *Manager) missing(f *figures, now time.Time) {
	l := &m.loop
	if f.silent = l.collecting.isSilent(now); f.silent {
		return
	}
	f.awaited = true
	if f.summary == nil || l.last.summary == nil {
		return
	}
	last := l.last.summary
	f.pods, f.images = l.last.pods, l.last.images
	if f.summary.Node.Runtime == nil {
		f.summary.Node.Runtime = last.Node.Runtime
	}
}

// lookAt looks at figures that were collected. They stay for looks that are caused by memory only: what was not seen
// now is not known.
func (m *Manager) lookAt(ctx context.Context, f figures) {
	m.loop.last, m.loop.collecting.silent = f, f.silent
	m.look(ctx, &m.loop.last)
}
