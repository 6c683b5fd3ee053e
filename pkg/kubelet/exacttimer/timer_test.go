package exacttimer

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/await"
)

func newTimer(t testing.TB) *Timer {
	t.Helper()
	timer, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(timer.Stop)
	return timer
}

func TestTimer(t *testing.T) {
	timer := newTimer(t)
	timer.Wait() // The time of a new timer has come.
	for _, d := range []time.Duration{-time.Second, 0, time.Nanosecond, 1500 * time.Microsecond, 20 * time.Millisecond} {
		begin := time.Now()
		timer.Set(d)
		timer.Wait()
		if took := time.Since(begin); took < d {
			t.Errorf("%v: returns after %v", d, took)
		}
	}
}

// A time replaces the one that was set before, also if that has come and was not waited for.
func TestSetAgain(t *testing.T) {
	timer := newTimer(t)
	for _, before := range []time.Duration{0, time.Hour} {
		timer.Set(before)
		begin := time.Now()
		timer.Set(5 * time.Millisecond)
		timer.Wait()
		if took := time.Since(begin); took < 5*time.Millisecond {
			t.Errorf("after %v: returns after %v", before, took)
		}
	}
}

func TestRing(t *testing.T) {
	timer := newTimer(t)
	timer.Set(time.Hour)
	timer.Ring()
	timer.Wait()
	timer.Set(time.Hour)
	var waiting sync.WaitGroup
	waiting.Go(timer.Wait)
	timer.Ring()
	waiting.Wait()
}

func TestStop(t *testing.T) {
	before := timers(t)
	for range 10 {
		timer := newTimer(t)
		timer.Set(time.Hour)
		var waiting sync.WaitGroup
		waiting.Go(timer.Wait)
		timer.Stop()
		waiting.Wait()
		timer.Ring()
	}
	await.True(t, "the files to be closed", func() bool { return timers(t) <= before })
}

// timers returns how many timers are open.
func timers(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(target, "timerfd") {
			n++
		}
	}
	return n
}

// BenchmarkPause waits as the memory watcher does while a threshold is approached: by the kernel, and by the runtime.
func BenchmarkPause(b *testing.B) {
	const pause = 2 * time.Millisecond
	late := func(b *testing.B, wait func()) {
		var sum time.Duration
		for b.Loop() {
			begin := time.Now()
			wait()
			sum += time.Since(begin) - pause
		}
		b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs-late/op")
	}
	b.Run("kernel", func(b *testing.B) {
		timer := newTimer(b)
		late(b, func() {
			timer.Set(pause)
			timer.Wait()
		})
	})
	b.Run("runtime", func(b *testing.B) {
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		late(b, func() {
			timer.Reset(pause)
			<-timer.C
		})
	})
}
