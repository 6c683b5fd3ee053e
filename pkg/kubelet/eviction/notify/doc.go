// Package notify turns notifications of the kernel about memory into wake-ups.
//
// A notification never decides anything and carries no figures: it only makes the eviction manager look sooner than its
// timer would. So a source may fire too often, too early, or not at all. Whoever uses one must be right without it.
package notify

// Source is one place where the kernel can be asked to report. Its events call the function it was made with, from a
// goroutine of its own; that function must not block.
type Source interface {
	// Arm asks to be told when the usage counter crosses this many bytes, in either direction. It replaces what was asked
	// before, without a time in which neither is in force. It must not be called by two goroutines at a time.
	Arm(usage int64) error
	// Close ends the source. No event is delivered after it has returned.
	Close() error
}
