package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	utilstore "k8s.io/kubernetes/pkg/kubelet/util/store"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus/taints"
)

const (
	eventTaintRecordRejected = "EvictionPluginTaintRecordRejected"
	// rejectedSuffix is added to the name of a record that is damaged.
	rejectedSuffix = ".rejected"
)

// errDamaged: the record is there, and is none.
var errDamaged = errors.New("the record is damaged")

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
func (w *TaintWriter) loadRecord(ctx context.Context) error {
	record, err := readTaintRecord(w.config.File)
	switch {
	case err == nil:
		w.record = record
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case !errors.Is(err, errDamaged):
		return err
	}
	rejected := w.config.File + rejectedSuffix
	if renamed := os.Rename(w.config.File, rejected); renamed != nil {
		err = errors.Join(err, renamed)
	}
	klog.FromContext(ctx).Error(err, "Rejected the record of taints", "path", w.config.File, "renamedTo", rejected)
	w.config.Recorder.Eventf(w.config.View.Ref(), v1.EventTypeWarning, eventTaintRecordRejected,
		"The record of taints of eviction plugins is damaged, and was renamed to %s. Taints with the prefix "+
			"node.katalyst.kubewharf.io/ that the Node has now will not be removed: %v", rejected, err)
	return nil
}

func readTaintRecord(path string) (taints.Record, error) {
	file, err := os.Open(path)
	if err != nil {
		return taints.Record{}, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, taints.MaxRecordSize+1))
	if errors.Is(err, unix.EISDIR) {
		return taints.Record{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err != nil {
		return taints.Record{}, err
	}
	record, err := taints.DecodeRecord(data)
	if err != nil {
		return taints.Record{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return record, nil
}

// saveRecord replaces the record, on disk first. If it returns nil, the file survives a power failure.
func (w *TaintWriter) saveRecord(record taints.Record) error {
	if record.Equal(w.record) {
		return nil
	}
	data, err := record.Encode()
	if err == nil {
		err = writeDurably(w.config.File, data)
	}
	if err != nil {
		return fmt.Errorf("store the record of taints: %w", err)
	}
	w.record = record
	return nil
}

// writeDurably replaces a file atomically, and writes it and its directory to the disk.
func writeDurably(path string, data []byte) error {
	directory := filepath.Dir(path)
	files, err := utilstore.NewFileStore(directory, &utilfs.DefaultFs{})
	if err != nil {
		return err
	}
	if err := files.Write(filepath.Base(path), data); err != nil {
		return err
	}
	opened, err := os.Open(directory)
	if err != nil {
		return err
	}
	return errors.Join(opened.Sync(), opened.Close())
}
