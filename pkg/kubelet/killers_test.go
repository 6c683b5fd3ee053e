package kubelet

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// What has pods stopped is stopped, and waited for, before the pod workers are: components stop in the reverse of this
// order.
func TestWhatStopsPodsEndsBeforeThePodWorkers(t *testing.T) {
	all := names(assembled(t, nil, nil))
	for _, name := range []string{"eviction and node shutdown", "preemption", "sync loop"} {
		if at := slices.Index(all, name); at < slices.Index(all, "pod workers") {
			t.Errorf("%q is at %d, before the pod workers in %q", name, at, all)
		}
	}
}

// Eviction and the node's shutdown begin when the runtime is first up, at a time that has nothing to do with the order
// of components.
func TestKillersEndBeforeThePodWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, d := &build{}, &diary{}
		ctx, cancel := context.WithCancel(t.Context())
		ended, started := make(chan error), make(chan struct{})
		killers := func(ctx context.Context) { b.node.killers.run(ctx) }
		go func() {
			ended <- runAll(ctx, []component{
				starts("runtime", b.prepareRuntime), d.runner("pod workers"), runs("killers", killers),
				starts("all", func(context.Context) { close(started) }),
			})
		}()
		<-started
		b.node.killers.Go(func(ctx context.Context) {
			<-ctx.Done()
			<-time.After(time.Second) // what it has begun takes a moment to end
			d.write("stop eviction")
		})
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		b.node.killers.Go(func(context.Context) { d.write("started too late") })
		synctest.Wait()
		if want := []string{"start pod workers", "stop eviction", "stop pod workers"}; !slices.Equal(d.lines, want) {
			t.Errorf("%q, want %q", d.lines, want)
		}
	})
}
