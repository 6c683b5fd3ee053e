package memorywatch

import "time"

// This file has what tests of the eviction manager ask.

// Owed returns for how long pauses have to last from now on until all reads are paid for.
func (w *Watcher) Owed() time.Duration { return w.costs.owed(w.clock()) }

// Completes reports whether a reading of all pods is known that readings of those that have changed complete.
func (w *Watcher) Completes() bool { return w.looks != nil && w.looks.base != nil }
