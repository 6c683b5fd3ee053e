package nodestatus

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// SyncNow computes the status, and reports it if it has changed or a report is due. It returns when that is done or has
// failed; a failure is logged, and the next heartbeat retries. It first makes one attempt to register a node that is
// not registered. In standalone mode it does nothing. It may be called concurrently at any time. It blocks;
// PressureChanged does not.
func (u *Updater) SyncNow(ctx context.Context) {
	if u.cannotReport() {
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
	d.rebase(u.newest(ctx, base))
	u.reported.applyConditions(ctx, d.node)
	changed := d.changed()
	if !changed && !u.reportDue() {
		// The volumes have been reported, possibly before a restart of the agent.
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

// spreadNextReport changes the time of the next report of an unchanged status by up to half the frequency, earlier or
// later, after a change or a start: many nodes may change or start at the same time. After a report that was only due,
// the interval is regular.
func (u *Updater) spreadNextReport(changed bool) {
	u.report.delay = 0
	if changed || u.report.last.IsZero() {
		u.report.delay = time.Duration(float64(u.cfg.Reporting.ReportFrequency) * (u.report.random() - 0.5))
	}
}
