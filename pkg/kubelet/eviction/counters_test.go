package eviction

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// flaky is a kernel whose counters or whose readings can fail.
type flaky struct {
	kernel
	// counters and readings are how many of the next calls fail, tried how often the counters were asked for.
	counters, readings, tried int
}

var errCounters = errors.New("input/output error")

func (f *flaky) fail(counters, readings int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counters, f.readings, f.tried = counters, readings, 0
}

func (f *flaky) attempts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tried
}

// fails reports whether one more call fails.
func (f *flaky) fails(left *int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	failing := *left > 0
	*left = max(0, *left-1)
	return failing
}

func (f *flaky) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	f.mu.Lock()
	f.tried++
	f.mu.Unlock()
	if f.fails(&f.counters) {
		return snapshot.MemoryCounters{}, errCounters
	}
	return f.kernel.Counters(how)
}

func (f *flaky) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	if f.fails(&f.readings) {
		unknown := snapshot.Observation{Err: errCounters}
		return snapshot.MemoryReading{Node: unknown, Pods: unknown}
	}
	return f.kernel.ReadMemory(how)
}

func (f *flaky) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	return onlyPods(f.ReadMemory(how), uids)
}

// TestOneFailedReadDoesNotSwitchTheFastPathOff: a leak of 1 GiB/s that follows is evicted as soon as it crosses the
// threshold.
func TestOneFailedReadDoesNotSwitchTheFastPathOff(t *testing.T) {
	for name, test := range map[string]struct {
		after              time.Duration
		counters, readings int
	}{
		"of the counters, at the start":      {0, 1, 0},
		"of the counters":                    {65 * time.Second, 1, 0},
		"of the memory, at the start":        {0, 0, 1},
		"of the memory when limits are read": {55 * time.Second, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.add("leak", gi)
				n.available(12*gi + 100*mi)
				f := &flaky{kernel: kernel{node: n}}
				c := n.config(t, hard("100Mi"))
				c.Memory = f
				if test.after == 0 {
					f.fail(test.counters, test.readings)
				}
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					if test.after > 0 {
						wait(test.after)
						f.fail(test.counters, test.readings)
					}
					wait(8 * time.Second)
					n.grows("leak", gi)
					wait(12*time.Second + 50*time.Millisecond)
					expect(t, "kills 50 ms after the crossing", n.killed(), []string{"leak/1"})
				})
			})
		})
	}
}

// TestAFailureOfTheCountersThatLastsIsReported: once, and its end too. The counters are tried again all the time, but
// not in a loop.
func TestAFailureOfTheCountersThatLastsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("leak", gi)
		n.available(12*gi + 100*mi)
		f := &flaky{kernel: kernel{node: n}}
		c := n.config(t, hard("100Mi"))
		c.Memory = f
		const always = 1 << 30
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			f.fail(always, 0)
			wait(20 * time.Second)
			expect(t, "events after 20 seconds", n.eventsOf(eventCountersUnreadable), []string(nil))
			expect(t, "metric", shown(t, "plimsoll_eviction_memory_counters_failed"), 1.0)
			wait(10 * time.Minute)
			expect(t, "events after ten minutes", len(n.eventsOf(eventCountersUnreadable)), 1)
			if tried := f.attempts(); tried < 60 || tried > 80 {
				t.Errorf("the counters were tried %d times in ten minutes", tried)
			}
			f.fail(0, 0)
			wait(20 * time.Second)
			expect(t, "metric after the end", shown(t, "plimsoll_eviction_memory_counters_failed"), 0.0)
			n.grows("leak", gi)
			wait(12*time.Second + 50*time.Millisecond)
			expect(t, "kills 50 ms after the crossing", n.killed(), []string{"leak/1"})
			expect(t, "events", len(n.eventsOf(eventCountersUnreadable)), 1)
		})
	})
}
