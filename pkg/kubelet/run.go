package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// stopTimeout is how long a component may take to end before the next one is stopped.
const stopTimeout = 5 * time.Second

// component is a part that is started, stopped and waited for. At least one of start and run is set.
type component struct {
	name string
	// afterRuntime components start when the container runtime is up for the first time, not with the agent.
	afterRuntime bool
	// start returns soon. What it starts ends with its context.
	start func(ctx context.Context) error
	// run is called after start, and returns when its context ends. It may return earlier: without an error when it has
	// nothing left to do, with an error to end the agent.
	run func(ctx context.Context) error
	// demand delays run until it is required; nil for a component that always runs.
	demand *demand
}

// starts returns a component whose start cannot fail.
func starts(name string, start func(context.Context)) component {
	return component{name: name, start: func(ctx context.Context) error { start(ctx); return nil }}
}

// runs returns a component that runs until its context ends and cannot fail.
func runs(name string, run func(context.Context)) component {
	return component{name: name, run: func(ctx context.Context) error { run(ctx); return nil }}
}

// ends returns a component of which only the end matters: wait is called when the component is stopped, with a context
// that ends after stopTimeout.
func ends(name string, wait func(context.Context) error) component {
	return component{name: name, run: func(ctx context.Context) error {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return wait(ctx)
	}}
}

// demand is that for a component which most nodes do not need: it has no goroutine until it is required.
type demand struct {
	mu       sync.Mutex
	required bool
	// begin runs the component. It is nil until the component has started, and once it was called.
	begin func()
}

// require has the component run from now on, or from its start on. It may be called at any time.
func (d *demand) require() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.required = true
	d.beginLocked()
}

// started passes what runs the component.
func (d *demand) started(begin func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begin = begin
	if d.required {
		d.beginLocked()
	}
}

func (d *demand) beginLocked() {
	if d.begin != nil {
		d.begin()
		d.begin = nil
	}
}

// runsOnDemand returns a component as runs does. It does not run before that is required.
func runsOnDemand(name string, d *demand, run func(context.Context)) component {
	c := runs(name, run)
	c.demand = d
	return c
}

// afterRuntime returns the components, to be started when the container runtime is up for the first time.
func afterRuntime(components ...component) []component {
	for i := range components {
		components[i].afterRuntime = true
	}
	return components
}

// runner starts components in the order of their list and stops them in reverse. Those that start after the runtime
// have their place in the same list, which is where they are stopped.
type runner struct {
	components []component
	// failed has the first error of a component.
	failed chan error

	mu       sync.Mutex
	all      []*running
	stopping bool
}

func newRunner(components ...component) *runner {
	return &runner{components: components, failed: make(chan error, 1)}
}

// run starts the components, waits until ctx ends or a component fails, and stops them. It returns the error of the
// component, nil when ctx ended. It must be called once.
func (r *runner) run(ctx context.Context) error {
	r.prepare(ctx)
	defer r.stop(ctx)
	for _, c := range r.list() {
		if c.afterRuntime {
			continue
		}
		if err := r.launch(c); err != nil {
			return startError{c.name, err}
		}
		select {
		case err := <-r.failed:
			return err
		default:
		}
	}
	select {
	case err := <-r.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (r *runner) prepare(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.components {
		r.all = append(r.all, newRunning(ctx, c))
	}
}

// list returns all components; none before run.
func (r *runner) list() []*running {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// runtimeUp starts the components that start after the runtime, and returns when that is done. It must be called once,
// by what run has started. An error ends the agent.
func (r *runner) runtimeUp() {
	for _, c := range r.list() {
		if !c.afterRuntime {
			continue
		}
		if err := r.launch(c); err != nil {
			r.fail(fmt.Errorf("starting %s: %w", c.name, err))
			return
		}
	}
}

// launch starts a component, unless the agent stops.
func (r *runner) launch(c *running) error {
	r.mu.Lock()
	if r.stopping {
		r.mu.Unlock()
		return nil
	}
	c.work.Add(1) // a stop waits for the start
	r.mu.Unlock()
	defer c.work.Done()
	if c.start != nil {
		if err := c.start(c.ctx); err != nil {
			return err
		}
	}
	switch {
	case c.run == nil:
	case c.demand != nil:
		c.demand.started(func() { r.begin(c) })
	default:
		r.begin(c)
	}
	return nil
}

// begin runs a component in a goroutine of its own, unless the agent stops.
func (r *runner) begin(c *running) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return
	}
	c.work.Go(func() {
		if err := c.run(c.ctx); err != nil && !errors.Is(err, context.Canceled) {
			r.fail(fmt.Errorf("%s: %w", c.name, err))
		}
	})
}

func (r *runner) fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
}

func (r *runner) stop(ctx context.Context) {
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	for i := len(r.all) - 1; i >= 0; i-- {
		r.all[i].stop(ctx)
	}
}

// startError is the error of a component that did not start.
type startError struct {
	component string
	err       error
}

func (e startError) Error() string { return fmt.Sprintf("starting %s: %v", e.component, e.err) }
func (e startError) Unwrap() error { return e.err }

// running is a component of one run. Its context does not end with that of the run: it ends when the component is
// stopped.
type running struct {
	component
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
}

func newRunning(ctx context.Context, c component) *running {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &running{component: c, ctx: own, cancel: cancel}
}

// stop ends the component's context and waits for it, but not longer than stopTimeout: some stock parts do not end.
func (r *running) stop(ctx context.Context) {
	r.cancel()
	ended := make(chan struct{})
	go func() { r.work.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(stopTimeout):
		klog.FromContext(ctx).Info("A component does not stop, going on without it", "component", r.name, "after",
			stopTimeout)
	}
}
