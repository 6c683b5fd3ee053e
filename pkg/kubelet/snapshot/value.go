package snapshot

import "time"

// Bytes is an amount of memory or disk space.
type Bytes int64

// Inodes is a number of inodes.
type Inodes int64

// PIDs is a number of processes (tasks of the kernel, which include threads).
type PIDs int64

// Amount is an amount in any of these units.
type Amount interface{ Bytes | Inodes | PIDs }

// Value is an observed amount. The zero Value is unknown.
type Value[T Amount] struct {
	Amount T
	// At is the date of the amount by its source; see Observation.At.
	At time.Time
	// Known is false if the source did not report the amount. Then Amount is meaningless.
	Known bool
}

// Known returns a known value; at is its date by the source.
func Known[T Amount](amount T, at time.Time) Value[T] {
	return Value[T]{Amount: amount, At: WallTime(at), Known: true}
}

// WallTime returns a wall time in UTC and without a monotonic reading, so that encoding it loses nothing.
func WallTime(t time.Time) time.Time { return t.Round(0).UTC() }

// Later returns the later one of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Observation is an observation of a signal. Amounts are in the unit of the signal (bytes, inodes or PIDs).
type Observation struct {
	// Available may be negative, for example after a limit was lowered.
	Available int64
	Capacity  int64
	// At is when the amounts were true, by the wall clock of the source, which may be set at any time; zero if the source
	// reports no date. It is compared only with other dates of the source and with Snapshot.WallTime. WallTime converts
	// it.
	At time.Time
	// Err is why there are no amounts; nil if they are valid.
	Err error
}

// Known reports whether the amounts are valid.
func (o Observation) Known() bool { return o.Err == nil }
