package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// stopTimeout is how long one component may take to end before the next one is told to.
const stopTimeout = 5 * time.Second

// component is a part that runs. One of start and run is set.
type component struct {
	name string
	// start returns soon; what it starts ends with its context.
	start func(ctx context.Context) error
	// run blocks until its context ends. Returning earlier without an error is fine (the part is done).
	run func(ctx context.Context) error
}

// starts is a component whose start cannot fail.
func starts(name string, start func(context.Context)) component {
	return component{name: name, start: func(ctx context.Context) error { start(ctx); return nil }}
}

// runs is a component that blocks and cannot fail.
func runs(name string, run func(context.Context)) component {
	return component{name: name, run: func(ctx context.Context) error { run(ctx); return nil }}
}

// Run starts the components in order, blocks until ctx ends or a component fails, and stops them in reverse. It returns the error
// that ended it, nil when ctx did. Pods go on running. It must be called once.
func (k *Kubelet) Run(ctx context.Context) error {
	err := runAll(ctx, k.components)
	if failed := (startError{}); errors.As(err, &failed) {
		k.setupFailed(failed)
	}
	return err
}

func runAll(ctx context.Context, components []component) error {
	failed := make(chan error, 1)
	fail := func(name string, err error) {
		select {
		case failed <- fmt.Errorf("%s: %w", name, err):
		default:
		}
	}
	var running []*running
	defer func() {
		for i := len(running) - 1; i >= 0; i-- {
			running[i].stop(ctx)
		}
	}()
	for _, c := range components {
		r, err := launch(ctx, c, fail)
		if err != nil {
			return startError{c.name, err}
		}
		running = append(running, r)
		select {
		case err := <-failed:
			return err
		default:
		}
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// startError says which component did not start.
type startError struct {
	component string
	err       error
}

func (e startError) Error() string { return fmt.Sprintf("starting %s: %v", e.component, e.err) }
func (e startError) Unwrap() error { return e.err }

// running is a component that was started. Its context does not end with the caller's: it is stopped when its turn comes.
type running struct {
	name   string
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func launch(ctx context.Context, c component, fail func(string, error)) (*running, error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{name: c.name, cancel: cancel}
	if c.start != nil {
		if err := c.start(own); err != nil {
			cancel()
			return nil, err
		}
		return r, nil
	}
	r.done.Go(func() {
		if err := c.run(own); err != nil && !errors.Is(err, context.Canceled) {
			fail(c.name, err)
		}
	})
	return r, nil
}

// stop ends the component's context and waits for it, but not for ever: some stock parts do not end.
func (r *running) stop(ctx context.Context) {
	r.cancel()
	ended := make(chan struct{})
	go func() { r.done.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(stopTimeout):
		klog.FromContext(ctx).Info("A component does not stop, going on without it", "component", r.name, "after", stopTimeout)
	}
}
