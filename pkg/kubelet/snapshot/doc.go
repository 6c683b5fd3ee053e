// Package snapshot holds what the agent has observed about its node, as values.
//
// A Snapshot is taken once, is never changed afterwards, and is all that a decision about pressure may look at: every
// figure carries its time and, when it could not be obtained, the reason. An absent figure is "unknown": it is neither
// zero nor the worst possible value, and its absence says nothing about any other figure.
//
// Times lie on two clocks, which are never compared with each other. Times of the agent itself (when a snapshot was
// taken, an eviction was begun, a grace period ends) lie on its monotonic clock, so that they order events and
// measure durations whatever is done to the wall clock. They are written as the wall time of the agent's start plus
// the monotonic time since. Dates that come from elsewhere (Observation.At, Value.At) lie on the wall clock of their
// source, which may be set at any time. They are compared with each other, to see whether an observation is new, and
// with Snapshot.WallTime, which gives their age; the age, subtracted from Snapshot.Taken, is their time on the
// monotonic clock. All are UTC without a monotonic reading, so that a snapshot that was written and read again equals
// the original.
//
// This package is pure. It does no I/O and reads no clock; package collect reads the world.
package snapshot
