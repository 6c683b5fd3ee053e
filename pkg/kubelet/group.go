package kubelet

import (
	"context"
	"sync"
)

// group is goroutines that end together. The component that runs it owns them.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	work   sync.WaitGroup
}

// newGroup returns an empty group, which ends with ctx at the latest.
func newGroup(ctx context.Context) *group {
	g := &group{}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Go calls do in a goroutine of the group, unless that has ended. do has to return when its context ends.
func (g *group) Go(do func(context.Context)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() == nil {
		g.work.Go(func() { do(g.ctx) })
	}
}

// run waits until ctx ends, and then ends the group and waits for it. To be called once.
func (g *group) run(ctx context.Context) {
	<-ctx.Done()
	g.mu.Lock()
	g.cancel()
	g.mu.Unlock()
	g.work.Wait()
}
