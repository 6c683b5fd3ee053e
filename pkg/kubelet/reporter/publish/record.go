package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

const (
	recordVersion = 1
	// maxRecordSize is the size of the largest record, in bytes: that of the largest object.
	maxRecordSize  = 1 << 20
	rejectedSuffix = ".rejected"

	eventRecordRejected = "CustomNodeResourceRecordRejected"
)

// errDamaged: the record is there, and is none.
var errDamaged = errors.New("the record is damaged")

// recordFile is the format of the record.
type recordFile struct {
	Version int `json:"version"`
	// Published: the object may have something of the agent.
	Published bool `json:"published"`
	// ObjectUID is that of the object with the taints, empty if there are none.
	ObjectUID types.UID `json:"objectUID,omitempty"`
	// Taints are those that the agent has added, or is about to add, sorted.
	Taints []taintID `json:"taints,omitempty"`
}

// of returns the taints of an object; none of another object of the same name, after it was deleted, or in another
// cluster.
func (r *recordFile) of(uid types.UID) []taintID {
	if r.ObjectUID != uid {
		return nil
	}
	return r.Taints
}

// with returns the record with other taints.
func (r *recordFile) with(uid types.UID, taints []taintID) recordFile {
	if len(taints) == 0 {
		uid = ""
	}
	return recordFile{Published: r.Published, ObjectUID: uid, Taints: taints}
}

func (r *recordFile) equal(o *recordFile) bool {
	return r.Published == o.Published && r.ObjectUID == o.ObjectUID && slices.Equal(r.Taints, o.Taints)
}

// decodeRecord reads a record. The data may come from anywhere.
func decodeRecord(data []byte) (recordFile, error) {
	var r recordFile
	if len(data) > maxRecordSize {
		return r, fmt.Errorf("size: more than %d bytes", maxRecordSize)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&r); err != nil {
		return recordFile{}, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return recordFile{}, errors.New("data after the JSON object")
	}
	if r.Version != recordVersion {
		return recordFile{}, fmt.Errorf("version: %d, must be %d", r.Version, recordVersion)
	}
	if r.ObjectUID == "" && len(r.Taints) > 0 {
		return recordFile{}, errors.New("objectUID: is missing")
	}
	slices.SortFunc(r.Taints, taintID.compare)
	r.Taints = slices.Compact(r.Taints)
	return r, nil
}

// load reads the record of an earlier run, unless that was done. A damaged one is renamed, and counts as one without
// taints, which are nobody's then: they stay in the object. An error is one that may pass.
func (p *Publisher) load(ctx context.Context) error {
	if p.recordLoaded {
		return nil
	}
	r, err := readRecord(p.config.Record)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case errors.Is(err, errDamaged):
		rejected := p.config.Record + rejectedSuffix
		if renamed := os.Rename(p.config.Record, rejected); renamed != nil {
			err = errors.Join(err, renamed)
		}
		klog.FromContext(ctx).Error(err, "Rejected the record of taints of the CustomNodeResource", "path", p.config.Record,
			"renamedTo", rejected)
		p.config.Recorder.Eventf(p.config.Node, v1.EventTypeWarning, eventRecordRejected,
			"The record of taints of the CustomNodeResource is damaged, and was renamed to %s. Taints that the object has "+
				"now will not be removed: %v", rejected, err)
		r, err = recordFile{Published: true}, nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNoRecord, err)
	}
	r.Published = r.Published || p.record.Published
	p.record, p.recordLoaded = r, true
	return nil
}

func readRecord(path string) (recordFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return recordFile{}, err
	}
	if !info.Mode().IsRegular() {
		return recordFile{}, fmt.Errorf("%w: it is no regular file", errDamaged)
	}
	file, err := os.Open(path)
	if err != nil {
		return recordFile{}, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxRecordSize+1))
	if err != nil {
		return recordFile{}, err
	}
	r, err := decodeRecord(data)
	if err != nil {
		return recordFile{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return r, nil
}

// save replaces the record, on disk first.
func (p *Publisher) save(r recordFile) error {
	if r.equal(&p.record) {
		return nil
	}
	r.Version = recordVersion
	data, err := json.Marshal(&r)
	if err == nil && len(data) > maxRecordSize {
		err = fmt.Errorf("%d bytes, must be at most %d", len(data), maxRecordSize)
	}
	if err == nil {
		err = replaceFile(p.config.Record, data)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnrecorded, err)
	}
	p.record = r
	return nil
}

// setPublished records whether the object may have something of the agent. Without the file the agent does it all the
// same: what is lost is that a later run removes it when the object is not to be published any more.
func (p *Publisher) setPublished(ctx context.Context, published bool) {
	if p.record.Published == published {
		return
	}
	r := p.record
	r.Published = published
	if p.recordLoaded {
		if err := p.save(r); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to record that the CustomNodeResource is published")
		}
	}
	p.record.Published = published
}

// publishedBefore reports whether the object may have something of the agent.
func (p *Publisher) publishedBefore(ctx context.Context) bool {
	if err := p.load(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("The record of the CustomNodeResource cannot be read", "err", err)
	}
	return p.record.Published
}

// replaceFile replaces a file atomically, and creates its directory. If it returns nil, the file survives a power
// failure.
func replaceFile(path string, data []byte) error {
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return err
	}
	temporary := path + ".tmp"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	opened, err := os.Open(directory)
	if err != nil {
		return err
	}
	return errors.Join(opened.Sync(), opened.Close())
}
