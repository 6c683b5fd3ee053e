package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/recordfile"
)

const (
	recordVersion = 1
	// maxRecordSize is the size of the largest record, in bytes: that of the largest object.
	maxRecordSize = 1 << 20

	eventRecordRejected = "CustomNodeResourceRecordRejected"
)

// record is what the record file has, in its format.
type record struct {
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
func (r *record) of(uid types.UID) []taintID {
	if r.ObjectUID != uid {
		return nil
	}
	return r.Taints
}

// with returns the record with other taints.
func (r *record) with(uid types.UID, taints []taintID) record {
	if len(taints) == 0 {
		uid = ""
	}
	return record{Published: r.Published, ObjectUID: uid, Taints: taints}
}

func (r *record) equal(o *record) bool {
	return r.Published == o.Published && r.ObjectUID == o.ObjectUID && slices.Equal(r.Taints, o.Taints)
}

func (r record) encode() ([]byte, error) {
	r.Version = recordVersion
	return json.Marshal(r)
}

// decodeRecord reads a record. The data may come from anywhere.
func decodeRecord(data []byte) (record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, err
	}
	if r.Version != recordVersion {
		return record{}, fmt.Errorf("version: %d, must be %d", r.Version, recordVersion)
	}
	if r.ObjectUID == "" && len(r.Taints) > 0 {
		return record{}, errors.New("objectUID: is missing")
	}
	slices.SortFunc(r.Taints, taintID.compare)
	r.Taints = slices.Compact(r.Taints)
	return r, nil
}

func (p *Publisher) recordFile() *recordfile.File[record] {
	return &recordfile.File[record]{
		Path: p.config.Record, MaxSize: maxRecordSize, Encode: record.encode, Decode: decodeRecord,
	}
}

// load reads the record of an earlier run, unless that was done. A damaged one is renamed, and counts as one without
// taints, which are nobody's then: they stay in the object. An error is one that may pass.
func (p *Publisher) load(ctx context.Context) error {
	if p.recordLoaded {
		return nil
	}
	r, err := p.recordFile().Load()
	if rejected := (*recordfile.RejectedError)(nil); errors.As(err, &rejected) {
		klog.FromContext(ctx).Error(err, "Rejected the record of taints of the CustomNodeResource", "path", p.config.Record,
			"renamedTo", rejected.RenamedTo)
		p.config.Recorder.Eventf(p.config.Node, v1.EventTypeWarning, eventRecordRejected,
			"The record of taints of the CustomNodeResource is damaged, and was renamed to %s. Taints that the object has "+
				"now will not be removed: %v", rejected.RenamedTo, err)
		r, err = record{Published: true}, nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNoRecord, err)
	}
	r.Published = r.Published || p.record.Published
	p.record, p.recordLoaded = r, true
	return nil
}

// save replaces the record, on disk first.
func (p *Publisher) save(r record) error {
	if r.equal(&p.record) {
		return nil
	}
	if err := p.recordFile().Save(r); err != nil {
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
