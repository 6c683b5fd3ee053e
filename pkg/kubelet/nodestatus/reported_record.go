package nodestatus

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus/reported"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/recordfile"
)

// reportedRecord returns the record; nothing before it was loaded.
func (u *Updater) reportedRecord() reported.Record {
	u.fields.record.mu.Lock()
	defer u.fields.record.mu.Unlock()
	return u.fields.record.value
}

// loadReportedRecord reads the record of an earlier run, unless that has been done. A damaged one is renamed, and
// counts as none: the fields in it belong to nobody then, so that they stay on the Node until somebody removes them.
// Another error is returned, and the next call tries again.
func (u *Updater) loadReportedRecord(ctx context.Context) error {
	r := &u.fields.record
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded || u.cfg.Reported.File == "" {
		return nil
	}
	record, err := u.reportedFile().Load()
	if rejected := (*recordfile.RejectedError)(nil); errors.As(err, &rejected) {
		klog.FromContext(ctx).Error(err, "Rejected the record of fields of reporter plugins", "path", u.cfg.Reported.File,
			"renamedTo", rejected.RenamedTo)
		u.cfg.Recorder.Eventf(u.Ref(), v1.EventTypeWarning, eventReportedRecordRejected,
			"The record of labels, annotations and extended resources of reporter plugins is damaged, and was renamed to %s. "+
				"Those that the Node has now will not be removed: %v", rejected.RenamedTo, err)
	} else if err != nil {
		return fmt.Errorf("read the record of fields of reporter plugins: %w", err)
	}
	r.value, r.loaded = record, true
	return nil
}

func (u *Updater) reportedFile() *recordfile.File[reported.Record] {
	return &recordfile.File[reported.Record]{
		Path: u.cfg.Reported.File, MaxSize: reported.MaxRecordSize,
		Encode: reported.Record.Encode, Decode: reported.DecodeRecord,
	}
}

// saveReportedRecord replaces the record, on disk first. If it returns nil, the file survives a power failure. The
// goroutine of RunReported alone calls it. Heartbeats read the record meanwhile: a disk may not respond for a long
// time.
func (u *Updater) saveReportedRecord(record reported.Record) error {
	r := &u.fields.record
	if record.Equal(u.reportedRecord()) {
		return nil
	}
	if err := r.save(record); err != nil {
		return fmt.Errorf("%w: %w", errUnrecorded, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value = record
	return nil
}
