package kubelet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// diary records what components do, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) write(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) expect(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, want) {
		t.Errorf("%q, want %q", d.lines, want)
	}
}

// runner is a component that runs. Its end takes a second.
func (d *diary) runner(name string) component { return runs(name, d.run(name)) }

func (d *diary) run(name string) func(context.Context) {
	return func(ctx context.Context) {
		d.write("start " + name)
		<-ctx.Done()
		time.Sleep(time.Second)
		d.write("stop " + name)
	}
}

// starter is a component that only starts. In a bubble, its start returns once all goroutines before it are blocked.
func (d *diary) starter(name string) component {
	return starts(name, func(context.Context) { time.Sleep(time.Millisecond); d.write(name) })
}

// begin runs the components until the function that it returns is called, which returns the error of the run.
func begin(t *testing.T, r *runner) (end func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	time.Sleep(time.Minute)
	return func() error { cancel(); return <-ended }
}

func TestRunStartsInOrderAndStopsInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		end := begin(t, newRunner(d.runner("a"), d.starter("then"), d.runner("b")))
		if err := end(); err != nil {
			t.Error(err)
		}
		d.expect(t, "start a", "then", "start b", "stop b", "stop a")
	})
}

// A component may start something and then run.
func TestStartReturnsBeforeRunBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		c := d.runner("c")
		c.start = d.starter("before c").start
		if err := begin(t, newRunner(c, d.starter("after c")))(); err != nil {
			t.Error(err)
		}
		d.expect(t, "before c", "start c", "after c", "stop c")
	})
}

func TestRunEndsWithTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		broken := component{name: "broken", run: func(context.Context) error { return errors.New("out of luck") }}
		err := newRunner(d.runner("a"), broken, d.runner("b")).run(t.Context())
		if err == nil || err.Error() != "broken: out of luck" {
			t.Errorf("err %v", err)
		}
		if !slices.Contains(d.lines, "stop a") {
			t.Errorf("a goes on: %v", d.lines)
		}
	})
}

func TestRunDoesNotStartWhatComesAfterAFailedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		broken := component{name: "broken", start: func(context.Context) error { return errors.New("no") }}
		err := newRunner(d.runner("a"), broken, d.runner("b")).run(t.Context())
		if failed := (startError{}); !errors.As(err, &failed) || err.Error() != "starting broken: no" {
			t.Errorf("err %v", err)
		}
		if slices.Contains(d.lines, "start b") || !slices.Contains(d.lines, "stop a") {
			t.Errorf("%q", d.lines)
		}
	})
}

func TestRunGoesOnWithoutAComponentThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		end := begin(t, newRunner(runs("stuck", func(context.Context) { <-release })))
		stopped := time.Now()
		if err := end(); err != nil {
			t.Error(err)
		}
		if waited := time.Since(stopped); waited != stopTimeout {
			t.Errorf("waited %v", waited)
		}
		close(release)
	})
}

// A component of which only the end matters gets a context that has not ended, with the time that a stop may take.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left time.Duration
		end := begin(t, newRunner(ends("c", func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return ctx.Err()
		})))
		if err := end(); err != nil || left != stopTimeout {
			t.Errorf("%v were left, error %v", left, err)
		}
	})
}

// late returns components of which two start after the runtime.
func late(d *diary) *runner {
	return newRunner(slices.Concat(
		[]component{d.runner("a")},
		afterRuntime(d.runner("late 1")),
		[]component{d.runner("b")},
		afterRuntime(d.starter("late start"), d.runner("late 2")),
		[]component{d.starter("all")})...)
}

// What starts after the runtime stops where it stands in the list.
func TestComponentsAfterTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		r := late(d)
		end := begin(t, r)
		r.runtimeUp()
		time.Sleep(time.Minute)
		if err := end(); err != nil {
			t.Error(err)
		}
		// The order of the first two is that of goroutines.
		slices.Sort(d.lines[:2])
		d.expect(t, "start a", "start b", "all", "start late 1", "late start", "start late 2",
			"stop late 2", "stop b", "stop late 1", "stop a")
	})
}

func TestComponentsAfterTheRuntimeDoNotStartWhenItIsNeverUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		r := late(d)
		if err := begin(t, r)(); err != nil {
			t.Error(err)
		}
		r.runtimeUp() // comes too late
		synctest.Wait()
		slices.Sort(d.lines[:2])
		d.expect(t, "start a", "start b", "all", "stop b", "stop a")
	})
}

// A component that cannot be started ends the agent; it is no error of the agent's start, which has an event.
func TestRunEndsWhenWhatComesAfterTheRuntimeDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		broken := component{name: "broken", start: func(context.Context) error { return errors.New("no") }}
		r := newRunner(slices.Concat(
			afterRuntime(d.runner("late 1"), broken, d.runner("late 2")), []component{d.starter("all")})...)
		ended := make(chan error, 1)
		go func() { ended <- r.run(t.Context()) }()
		time.Sleep(time.Minute)
		r.runtimeUp()
		err := <-ended
		if failed := (startError{}); err == nil || errors.As(err, &failed) || err.Error() != "starting broken: no" {
			t.Errorf("error %v", err)
		}
		d.expect(t, "all", "start late 1", "stop late 1")
	})
}

// A stop ends the context of a start that is under way, waits for it, and starts nothing after it.
func TestStopDuringTheStartAfterTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		slow := component{name: "slow", start: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			d.write("slow start ends")
			return nil
		}}
		r := newRunner(slices.Concat(
			[]component{d.runner("a")}, afterRuntime(slow, d.runner("late")), []component{d.starter("all")})...)
		end := begin(t, r)
		up := make(chan struct{})
		go func() { r.runtimeUp(); close(up) }()
		time.Sleep(time.Minute)
		if err := end(); err != nil {
			t.Error(err)
		}
		<-up
		d.expect(t, "start a", "all", "slow start ends", "stop a")
		if strings.Contains(strings.Join(d.lines, " "), "start late") {
			t.Error("late has started")
		}
	})
}

// A component on demand runs once that is required: before its start, while the agent runs, or never.
func TestRunsOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		on := func(name string, when *demand) component { return runsOnDemand(name, when, d.run(name)) }
		var before, later, never, afterwards demand
		before.require()
		end := begin(t, newRunner(on("a", &before), on("b", &later), on("c", &never), on("d", &afterwards)))
		d.expect(t, "start a")
		later.require()
		later.require()
		synctest.Wait()
		d.expect(t, "start a", "start b")
		if err := end(); err != nil {
			t.Error(err)
		}
		afterwards.require()
		synctest.Wait()
		d.expect(t, "start a", "start b", "stop b", "stop a")
	})
}
