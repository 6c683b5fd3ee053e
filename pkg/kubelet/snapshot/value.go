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
	// At is when it was true by its source, see Observation.At.
	At time.Time
	// Known is false when there was no such figure. Amount is meaningless then.
	Known bool
}

// Known makes a known value, at is when its source says that it was true.
func Known[T Amount](amount T, at time.Time) Value[T] {
	return Value[T]{Amount: amount, At: WallTime(at), Known: true}
}

// WallTime returns a time by the wall clock: in UTC and without a monotonic reading, so that nothing is lost when it is
// written.
func WallTime(t time.Time) time.Time { return t.Round(0).UTC() }

// Observation is the state of one signal. Amounts are in the signal's own unit (bytes, inodes or PIDs).
type Observation struct {
	// Available may be negative: a limit that was lowered, more PIDs than the maximum.
	Available int64
	Capacity  int64
	// At is when the amounts were true by the source's wall clock, which may be set at any time; zero if the source does
	// not say. It is made by WallTime and compared only with other dates of the source, and with Snapshot.WallTime.
	At time.Time
	// Err says why there are no amounts; nil means that they are valid.
	Err error
}

// Known reports whether there are figures.
func (o Observation) Known() bool { return o.Err == nil }
