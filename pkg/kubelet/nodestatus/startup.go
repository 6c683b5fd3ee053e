package nodestatus

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

const (
	startupPeriod = 100 * time.Millisecond
	// maxStartup is how long the fast path tries to report Ready. After that only heartbeats report it.
	maxStartup = 120 * time.Second
)

// reportReadyOnce checks every startupPeriod whether the node is Ready, reports that once, and returns.
func (u *Updater) reportReadyOnce(ctx context.Context) {
	start := u.cfg.Clock.Now()
	for !u.startupOver(ctx, start) {
		if !pause(ctx, startupPeriod) {
			return
		}
	}
	if u.cfg.OnStartupOver != nil {
		u.cfg.OnStartupOver()
	}
}

func (u *Updater) startupOver(ctx context.Context, start time.Time) bool {
	u.syncing.Lock()
	defer u.syncing.Unlock()
	if u.cfg.Clock.Since(start) >= maxStartup {
		klog.FromContext(ctx).Error(nil, "Node not becoming ready in time after startup")
		return true
	}
	return u.tryReady(ctx)
}

// tryReady returns true if the Node is Ready, or if tryReady has reported that. The caller holds syncing.
func (u *Updater) tryReady(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	base, err := u.Lookup(ctx)
	if err != nil {
		logger.V(4).Info("Node is not in the lister yet", "node", klog.KRef("", string(u.Name())), "err", err)
		return false
	}
	u.restoreFrom(base)
	base = u.lockedNewest(ctx, base)
	before := ready(base)
	if before == nil {
		logger.Error(nil, "Node does not have NodeReady condition", "originalNode", klog.KObj(base))
		return false
	}
	if before.Status == v1.ConditionTrue {
		return true
	}
	u.cfg.RuntimeUpdater.Update(ctx)
	d := u.newDraft(ctx, base)
	becameReady, err := u.patchIfReady(ctx, d)
	if err != nil {
		logger.Error(err, "Error updating node status, will retry with a heartbeat")
		u.sync(ctx)
	}
	return becameReady
}

// patchIfReady sends the draft if the Node becomes Ready by it. It does not mark volumes as reported; the next
// heartbeat does.
func (u *Updater) patchIfReady(ctx context.Context, d *draft) (becameReady bool, err error) {
	u.writing.Lock()
	defer u.writing.Unlock()
	d.rebase(u.newest(ctx, d.base))
	u.reported.applyConditions(ctx, d.node)
	after := ready(d.node)
	if !d.changed() || after == nil || after.Status == v1.ConditionFalse {
		return false, nil
	}
	klog.FromContext(ctx).Info("Fast updating node status as it just became ready")
	if _, err := u.patch(d.base, d.node); err != nil {
		return true, err
	}
	u.report.last = u.cfg.Clock.Now()
	return true, nil
}
