package nodestatus

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/util/wait"
)

// jitter spreads the heartbeats of nodes that were started together.
const jitter = 0.04

// Run registers the node and keeps its status current until ctx ends; then it returns, after all it started has ended.
// In standalone mode it only waits for ctx. Call it once.
func (u *Updater) Run(ctx context.Context) {
	if u.reportsNothing() {
		<-ctx.Done()
		return
	}
	var running sync.WaitGroup
	running.Go(func() { u.reportReadyOnce(ctx) })
	running.Go(func() { u.publishPressureWhenAsked(ctx) })
	running.Go(func() { u.beat(ctx) })
	running.Wait()
}

func (u *Updater) beat(ctx context.Context) {
	// Otherwise the first report after a restart would say NotReady, because the runtime has not been asked yet.
	u.cfg.RuntimeUp.Update(ctx)
	if u.registerUntilDone(ctx) {
		wait.JitterUntilWithContext(ctx, u.SyncNow, u.cfg.Reporting.UpdateFrequency, jitter, true)
	}
}
