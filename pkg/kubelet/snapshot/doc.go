// Package snapshot holds what the agent has observed of its node, as values.
//
// A Snapshot is taken once, is immutable, and is the only observation that a decision about pressure uses. Amounts have
// the time at which they were true or, if they could not be obtained, the reason. A missing amount is unknown: it is
// not replaced by zero or by the worst possible value, and other amounts remain valid.
//
// Times are of two clocks, and times of one are never compared with times of the other. Times of the agent (when a
// snapshot was taken, an eviction was begun, a grace period ends) are of its monotonic clock, so that setting the wall
// clock affects neither their order nor durations; they are represented as the wall time of the agent's start plus the
// monotonic time since. Dates from other sources (Observation.At, Value.At) are of the wall clock of the source, which
// may be set at any time. They are compared with each other, to find out whether an observation is new, and with
// Snapshot.WallTime, which gives their age; Snapshot.Taken minus that age is their time on the monotonic clock. All are
// UTC without a monotonic reading, so that encoding and decoding a snapshot loses nothing.
//
// The package is pure: it does no I/O and reads no clock. Package collect reads the node.
package snapshot
