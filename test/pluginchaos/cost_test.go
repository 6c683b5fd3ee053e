package pluginchaos

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/await"
)

const (
	// idle is the number of plugins that never name a pod.
	idle = 20
	// registrations is how many plugins register, one after the other.
	registrations = 1000
	// maxLeak is the growth of the heap by all registrations, in bytes.
	maxLeak = 2 << 20
)

// TestRegistrationsLeakNothing: plugins that have registered, were called and have deregistered leave neither
// goroutines nor memory.
func TestRegistrationsLeakNothing(t *testing.T) {
	a := startParts(t, 5*time.Millisecond, func(ctx context.Context, _ *agent) { <-ctx.Done() })
	c := startChild(t, "idle", a.directory)
	await.Until(t, "sockets", func() error { return a.validate(idle - 1) })
	// The first registrations allocate what stays, as the names of plugins in metrics.
	a.registerAndDeregister(t, 0, registrations/10)
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	a.registerAndDeregister(t, registrations/10, registrations)
	await.Until(t, "goroutines of connections end", func() error {
		return atMost(runtime.NumGoroutine(), goroutines+maxGoroutines)
	})
	if after := heapInUse(); after > heap+maxLeak {
		t.Errorf("the heap has grown from %d to %d KiB", heap>>10, after>>10)
	} else {
		t.Logf("the heap had %d KiB, now %d KiB", heap>>10, after>>10)
	}
	c.stop(t)
	a.stop()
	runtime.KeepAlive(a)
}

func (a *agent) socket(i int) string { return socketOf(a.directory, fmt.Sprintf("idle-%d", i%idle)) }

func (a *agent) validate(i int) error {
	return a.host.ValidatePlugin(leakName(i), a.socket(i), []string{"v1alpha1"})
}

func leakName(i int) string { return fmt.Sprintf("leak-%d", i) }

// registerAndDeregister registers plugins with new names as stock's plugin manager does, ten at a time.
func (a *agent) registerAndDeregister(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := errors.Join(a.validate(i), a.host.RegisterPlugin(leakName(i), a.socket(i), nil, nil)); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			await.Until(t, "a call of "+leakName(i), func() error { return a.answered(leakName(i)) })
		}
		if i-from >= 10 {
			a.host.DeRegisterPlugin(leakName(i-10), a.socket(i-10))
		}
	}
	for i := to - 10; i < to; i++ {
		a.host.DeRegisterPlugin(leakName(i), a.socket(i))
	}
	await.Until(t, "no plugins", func() error { return atMost(len(a.driver.List().Plugins), 0) })
}

// answered returns an error until the plugin has answered.
func (a *agent) answered(name string) error {
	for _, p := range a.driver.List().Plugins {
		if p.Name == name && p.LastAnswer != (*debugv1alpha1.PluginAnswer)(nil) {
			return nil
		}
	}
	return errors.New("no answer")
}

// heapInUse is the heap after collections of garbage: values with cleanups take two.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkPluginsAtRest measures the CPU time that 20 plugins, which never name a pod, cost the agent on a node with
// 110 pods, and that of the agent without plugins. One operation is one period of 5 s; -benchtime 12x is a minute.
func BenchmarkPluginsAtRest(b *testing.B) {
	const period = 5 * time.Second
	for _, n := range []int{0, idle} {
		b.Run(fmt.Sprintf("plugins=%d", n), func(b *testing.B) {
			a := startAgent(b, period)
			if n > 0 {
				startChild(b, "idle", a.directory)
			}
			await.Until(b, "plugins", a.registered("idle", n))
			await.Until(b, "answers", func() error { return a.allAnswered(n) })
			runtime.GC()
			before := cpuTime(b)
			tick := time.NewTicker(period)
			defer tick.Stop()
			for b.Loop() {
				<-tick.C
			}
			cores := (cpuTime(b) - before).Seconds() / b.Elapsed().Seconds()
			b.ReportMetric(cores*1000, "millicores")
		})
	}
}

func (a *agent) allAnswered(n int) error {
	for i := range n {
		if err := a.answered(fmt.Sprintf("idle-%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// cpuTime is the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
