package nodestatus

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/util/wait"
)

// jitter spreads the heartbeats of nodes that were started at the same time.
const jitter = 0.04

// Run registers the node and updates its status until ctx ends. It returns after all its goroutines have ended. In
// standalone mode it only waits for ctx. It must be called once.
func (u *Updater) Run(ctx context.Context) {
	if u.cannotReport() {
		<-ctx.Done()
		return
	}
	var running sync.WaitGroup
	running.Go(func() { u.reportReadyOnce(ctx) })
	running.Go(func() { u.publishPressureOnRequest(ctx) })
	running.Go(func() { u.runHeartbeats(ctx) })
	running.Wait()
}

func (u *Updater) runHeartbeats(ctx context.Context) {
	// Without an answer of the runtime the first report after a restart would be NotReady.
	u.cfg.RuntimeUpdater.Update(ctx)
	if u.registerUntilDone(ctx) {
		wait.JitterUntilWithContext(ctx, u.SyncNow, u.cfg.Reporting.UpdateFrequency, jitter, true)
	}
}
