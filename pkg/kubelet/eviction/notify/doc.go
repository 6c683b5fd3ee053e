// Package notify turns memory notifications of the kernel into triggers of rounds.
//
// A notification carries no amounts: it makes the eviction manager observe the node earlier than its timer would. A
// source may report too often, too early, or not at all; the manager must be correct without it.
//
// On cgroup v1 a Memcg reports that usage has crossed a level. Cgroup v2 has no such levels: a Pressure reports that
// tasks are stalled on memory, and that a cgroup has reached its limit.
package notify

// Source is a source of kernel notifications that has a level. It calls the function that it was made with, from a
// goroutine of its own; that function must not block.
type Source interface {
	// Arm requests an event when the usage counter crosses this number of bytes, in either direction. It replaces the
	// previous request; there is no time without a request in force. It must not be called concurrently with itself or
	// with Close.
	Arm(usage int64) error
	// Close releases the source. It delivers no event after it has returned.
	Close() error
}
