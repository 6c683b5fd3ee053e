package publish

import "time"

const (
	// changeWindow is how long a change waits for others, which are one write with it.
	changeWindow = time.Second
	// burst is how many writes there are at once.
	burst = 5
	// creationInterval is the minimum time between two creations of the object. An object that others delete comes back
	// within 10 s, however often it was written before.
	creationInterval = 5 * time.Second
)

// pace says when an object is written: a second after the first change since the last write; five times at once, and
// then once per sustained. It does not look at a clock.
type pace struct {
	// sustained is the time from one write to the next. It must be positive.
	sustained time.Duration
	// full is when five writes are possible at once again.
	full time.Time
	// changed is when the first change was that is not written; zero if there is none.
	changed time.Time
	// created is the last creation.
	created time.Time
}

// change is a change at a time.
func (p *pace) change(now time.Time) {
	if p.changed.IsZero() {
		p.changed = now
	}
}

// unchanged: there is nothing to write any more.
func (p *pace) unchanged() { p.changed = time.Time{} }

// due returns when the changes may be written. Creating an object does not wait for sustained.
func (p *pace) due(create bool) time.Time {
	at, other := p.changed.Add(changeWindow), p.full.Add(-(burst-1)*p.sustained)
	if create {
		other = p.created.Add(creationInterval)
	}
	if other.After(at) {
		return other
	}
	return at
}

// written is a write at a time, which has or has not created the object.
func (p *pace) written(now time.Time, created bool) {
	p.changed = time.Time{}
	if now.After(p.full) {
		p.full = now
	}
	p.full = p.full.Add(p.sustained)
	if limit := now.Add(burst * p.sustained); p.full.After(limit) {
		p.full = limit // only a creation is earlier than due
	}
	if created {
		p.created = now
	}
}

// setSustained changes the time between writes, also for the writes that were made.
func (p *pace) setSustained(d time.Duration, now time.Time) {
	if d == p.sustained {
		return
	}
	if p.full.After(now) {
		writes := float64(p.full.Sub(now)) / float64(p.sustained)
		p.full = now.Add(time.Duration(writes * float64(d)))
	}
	p.sustained = d
}
