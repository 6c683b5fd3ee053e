package exacttimer

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/await"
)

func TestTimer(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 0, time.Nanosecond, 1500 * time.Microsecond, 20 * time.Millisecond} {
		begin := time.Now()
		timer := New(d)
		at := <-timer.C()
		if took := at.Sub(begin); took < d {
			t.Errorf("%v: expires after %v", d, took)
		}
		timer.Stop()
	}
}

func TestReset(t *testing.T) {
	timer := New(time.Hour)
	defer timer.Stop()
	for _, d := range []time.Duration{time.Millisecond, 0, 2 * time.Millisecond} {
		begin := time.Now()
		if !timer.Reset(d) {
			t.Fatal("the timer cannot be reset")
		}
		if took := (<-timer.C()).Sub(begin); took < d {
			t.Errorf("%v: expires after %v", d, took)
		}
	}
}

// A time that was not received does not keep the next one from being received.
func TestTimeThatWasNotReceived(t *testing.T) {
	timer := New(0).(*timer)
	defer timer.Stop()
	await.True(t, "the timer to expire", func() bool { return len(timer.c) == 1 })
	begin := time.Now()
	timer.Reset(5 * time.Millisecond)
	for at := range timer.c {
		if at.Sub(begin) >= 5*time.Millisecond {
			return
		}
	}
}

func TestStopClosesTheFile(t *testing.T) {
	before := timers(t)
	for range 10 {
		New(time.Hour).Stop()
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
	late := func(b *testing.B, reset func(), c <-chan time.Time) {
		var sum time.Duration
		for b.Loop() {
			begin := time.Now()
			reset()
			<-c
			sum += time.Since(begin) - pause
		}
		b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs-late/op")
	}
	b.Run("kernel", func(b *testing.B) {
		timer := New(time.Hour)
		defer timer.Stop()
		late(b, func() { timer.Reset(pause) }, timer.C())
	})
	b.Run("runtime", func(b *testing.B) {
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		late(b, func() { timer.Reset(pause) }, timer.C)
	})
}
