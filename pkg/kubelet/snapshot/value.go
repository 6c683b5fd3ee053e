package snapshot

import "time"

// Bytes of memory or of disk.
type Bytes int64

// Inodes of a file system.
type Inodes int64

// PIDs is a number of processes (on Linux: tasks).
type PIDs int64

// Amount is any of the units that a pod's usage is measured in.
type Amount interface{ Bytes | Inodes | PIDs }

// Value is one observed amount. The zero Value is unknown.
type Value[T Amount] struct {
	Amount T
	// At is when it was true; zero when the source does not say.
	At time.Time
	// Known is false when there was no such figure. Amount is meaningless then.
	Known bool
}

// Known makes a known value.
func Known[T Amount](amount T, at time.Time) Value[T] {
	return Value[T]{Amount: amount, At: at, Known: true}
}

// Observation is the state of one signal. Amounts are in the signal's own unit (bytes, inodes or PIDs).
type Observation struct {
	// Available may be negative: a limit that was lowered, more PIDs than the maximum.
	Available int64
	Capacity  int64
	// At is when the figures were true by the source's clock, which may be the time of day and be set; zero when it
	// does not say.
	At time.Time
	// Err says why there are no figures; nil means that the others are valid.
	Err error
}

// Known reports whether there are figures.
func (o Observation) Known() bool { return o.Err == nil }

// Time is At, or the given time of the snapshot when the source does not say.
func (o Observation) Time(taken time.Time) time.Time {
	if o.At.IsZero() {
		return taken
	}
	return o.At
}

// earliest prefers a known time over an unknown one.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
