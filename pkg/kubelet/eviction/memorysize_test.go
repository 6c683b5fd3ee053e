package eviction

import (
	"testing"
	"testing/synctest"
	"time"
)

// A virtual machine is given more memory or less while the agent runs. Which threshold is met follows with the next
// read of the counters: nothing is evicted for memory that is there, and shortage is seen before the next collection.
func TestNodeIsGivenMoreMemoryOrLess(t *testing.T) {
	for name, test := range map[string]struct {
		threshold string
		// free is available before; then the size of memory changes, and the system uses more.
		free, change, system int64
		evicts               bool
	}{
		"more, which the system uses": {"100Mi", 2 * gi, 8 * gi, 9 * gi, false},
		"less, but not too little":    {"100Mi", 2 * gi, -gi, 0, false},
		"less than the threshold":     {"100Mi", 2 * gi, -2 * gi, 0, true},
		"percent of less":             {"10%", 9 * gi, -6 * gi, 0, false},
		"percent of more":             {"10%", 4 * gi, 16 * gi, 15*gi + gi/2, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 0, 0, "hog")
				b.config = b.node.config(t, hard(test.threshold))
				b.config.Memory, b.config.Options = b.kernel, fencesOn()
				b.config.Sinks = append(b.config.Sinks, b.fencer)
				b.available(test.free)
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(15 * time.Second)
					if got := b.fencer.victims(); len(got) > 0 {
						t.Fatalf("victims %v before", got)
					}
					b.mu.Lock()
					b.capacity += test.change
					b.system += test.system
					b.mu.Unlock()
					wait(3 * time.Second)
					if got := b.fencer.victims(); (len(got) > 0) != test.evicts {
						t.Errorf("victims %v", got)
					}
				})
			})
		})
	}
}
