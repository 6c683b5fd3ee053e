package nodestatus

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// SyncNow computes the status and reports it if there is something to report. It returns when that is done or has
// failed; a failure is logged, and the next heartbeat tries again. A node that is not registered is registered first,
// with one attempt. Without an API server it does nothing. It may be called by anybody at any time, but does not belong
// on a path that must not wait: see PressureChanged.
func (u *Updater) SyncNow(ctx context.Context) {
	if u.reportsNothing() {
		return
	}
	u.syncing.Lock()
	defer u.syncing.Unlock()
	u.sync(ctx)
}

// sync is SyncNow for callers that hold syncing.
func (u *Updater) sync(ctx context.Context) {
	logger := klog.FromContext(ctx)
	if err := u.register(ctx); err != nil {
		logger.Error(err, "Unable to register node with API server", "node", klog.KRef("", string(u.Name())))
		return
	}
	logger.V(5).Info("Updating node status")
	if err := u.retry(ctx, u.tryHeartbeat); err != nil {
		logger.Error(err, "Unable to update node status")
	}
}

func (u *Updater) tryHeartbeat(ctx context.Context, try int) error {
	base, err := u.read(ctx, try)
	if err != nil {
		return err
	}
	d := u.newDraft(ctx, base)

	u.writing.Lock()
	defer u.writing.Unlock()
	d.rebase(u.freshest(ctx, base))
	u.reported.applyConditions(ctx, d.node)
	changed := d.changed()
	if !changed && !u.reportDue() {
		// Volumes count as reported also if the report is from before a restart.
		u.cfg.Volumes.MarkVolumesAsReportedInUse(d.node.Status.VolumesInUse)
		return nil
	}
	u.spreadNextReport(changed)
	updated, err := u.patch(d.base, d.node)
	if err != nil {
		return err
	}
	u.report.last = u.cfg.Clock.Now()
	u.cfg.Volumes.MarkVolumesAsReportedInUse(updated.Status.VolumesInUse)
	return nil
}

func (u *Updater) reportDue() bool {
	return u.cfg.Clock.Since(u.report.last) >= u.cfg.Reporting.ReportFrequency+u.report.delay
}

// spreadNextReport delays the next report of an unchanged status by up to half the frequency in either direction after
// a change or a start, which may have hit many nodes in the same moment. After a report that was merely due the
// distance stays regular.
func (u *Updater) spreadNextReport(changed bool) {
	u.report.delay = 0
	if changed || u.report.last.IsZero() {
		u.report.delay = time.Duration(float64(u.cfg.Reporting.ReportFrequency) * (u.report.random() - 0.5))
	}
}
