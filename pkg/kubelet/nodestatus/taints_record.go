package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus/taints"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/recordfile"
)

const eventTaintRecordRejected = "EvictionPluginTaintRecordRejected"

// awaitRecord loads the record of an earlier run. If it cannot be read, that is tried again until ctx ends: without it
// the taints of the agent would count as those of others. It returns false if ctx has ended.
func (w *TaintWriter) awaitRecord(ctx context.Context) bool {
	for failures := 1; ; failures++ {
		err := w.loadRecord(ctx)
		if err == nil {
			return true
		}
		klog.FromContext(ctx).Error(err, "Failed to read the record of taints, will retry", "path", w.config.File)
		if !pause(ctx, taintBackOff(failures, err, rand.Float64())) {
			return false
		}
	}
}

// loadRecord reads the record of an earlier run. A damaged one is renamed, and counts as none: the taints in it belong
// to nobody then, so that they stay on the Node until somebody removes them.
func (w *TaintWriter) loadRecord(ctx context.Context) (err error) {
	w.record, err = w.file().Load()
	rejected := (*recordfile.RejectedError)(nil)
	if !errors.As(err, &rejected) {
		return err
	}
	klog.FromContext(ctx).Error(err, "Rejected the record of taints", "path", w.config.File,
		"renamedTo", rejected.RenamedTo)
	w.config.Recorder.Eventf(w.config.View.Ref(), v1.EventTypeWarning, eventTaintRecordRejected,
		"The record of taints of eviction plugins is damaged, and was renamed to %s. Taints with the prefix "+
			"node.katalyst.kubewharf.io/ that the Node has now will not be removed: %v", rejected.RenamedTo, err)
	return nil
}

func (w *TaintWriter) file() *recordfile.File[taints.Record] {
	return &recordfile.File[taints.Record]{
		Path: w.config.File, MaxSize: taints.MaxRecordSize, Encode: taints.Record.Encode, Decode: taints.DecodeRecord,
	}
}

// saveRecord replaces the record, on disk first. If it returns nil, the file survives a power failure.
func (w *TaintWriter) saveRecord(record taints.Record) error {
	if record.Equal(w.record) {
		return nil
	}
	if err := w.file().Save(record); err != nil {
		return fmt.Errorf("store the record of taints: %w", err)
	}
	w.record = record
	return nil
}
