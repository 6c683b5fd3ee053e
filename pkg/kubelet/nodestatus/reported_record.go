package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus/reported"
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
	path := u.cfg.Reported.File
	if r.loaded || path == "" {
		return nil
	}
	record, err := readReportedRecord(path)
	switch {
	case err == nil:
		r.value = record
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errDamaged):
		u.rejectReportedRecord(ctx, path, err)
	default:
		return fmt.Errorf("read the record of fields of reporter plugins: %w", err)
	}
	r.loaded = true
	return nil
}

func (u *Updater) rejectReportedRecord(ctx context.Context, path string, err error) {
	rejected := path + rejectedSuffix
	if renamed := os.Rename(path, rejected); renamed != nil {
		err = errors.Join(err, renamed)
	}
	klog.FromContext(ctx).Error(err, "Rejected the record of fields of reporter plugins", "path", path,
		"renamedTo", rejected)
	u.cfg.Recorder.Eventf(u.Ref(), v1.EventTypeWarning, eventReportedRecordRejected,
		"The record of labels, annotations and extended resources of reporter plugins is damaged, and was renamed to %s. "+
			"Those that the Node has now will not be removed: %v", rejected, err)
}

func readReportedRecord(path string) (reported.Record, error) {
	file, err := os.Open(path)
	if err != nil {
		return reported.Record{}, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, reported.MaxRecordSize+1))
	if errors.Is(err, unix.EISDIR) {
		return reported.Record{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err != nil {
		return reported.Record{}, err
	}
	record, err := reported.DecodeRecord(data)
	if err != nil {
		return reported.Record{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return record, nil
}

// saveReportedRecord replaces the record, on disk first. If it returns nil, the file survives a power failure. The
// goroutine of RunReported alone calls it. Heartbeats read the record meanwhile: a disk may not respond for a long
// time.
func (u *Updater) saveReportedRecord(record reported.Record) error {
	r := &u.fields.record
	if record.Equal(u.reportedRecord()) {
		return nil
	}
	data, err := record.Encode()
	if err == nil {
		err = r.write(u.cfg.Reported.File, data)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnrecorded, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value = record
	return nil
}
