package taints

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// recordVersion is the version of the format. Later releases add fields without a new version.
	recordVersion = 1
	// MaxRecordSize is the size of the largest record, in bytes. Plugins report at most 64 conditions with three effects.
	MaxRecordSize = 64 << 10
)

// Record has the taints that the agent has added to a Node, or is about to add.
type Record struct {
	// NodeUID is empty if there is no record.
	NodeUID types.UID
	// Taints are in the order of key and effect, each once.
	Taints []Taint
}

// Of returns the taints of the Node with this UID; none of another Node of the same name.
func (r Record) Of(node types.UID) []Taint {
	if r.NodeUID != node {
		return nil
	}
	return r.Taints
}

// Equal reports whether two records are the same.
func (r Record) Equal(o Record) bool {
	return r.NodeUID == o.NodeUID && slices.Equal(r.Taints, o.Taints)
}

// recordFile is the format of a record.
type recordFile struct {
	Version int             `json:"version"`
	NodeUID types.UID       `json:"nodeUID"`
	Taints  []recordedTaint `json:"taints"`
}

type recordedTaint struct {
	Key    string         `json:"key"`
	Effect v1.TaintEffect `json:"effect"`
}

// Encode returns the record as JSON, which DecodeRecord reads.
func (r Record) Encode() ([]byte, error) {
	file := recordFile{Version: recordVersion, NodeUID: r.NodeUID, Taints: []recordedTaint{}}
	for _, t := range sorted(r.Taints) {
		file.Taints = append(file.Taints, recordedTaint(t))
	}
	return json.Marshal(file)
}

// DecodeRecord reads a record. The data may come from anywhere; the error names the field, its value and what is
// allowed. It never returns a taint without the prefix of plugin conditions.
func DecodeRecord(data []byte) (Record, error) {
	var file recordFile
	if err := json.Unmarshal(data, &file); err != nil {
		return Record{}, fmt.Errorf("not a record of taints: %w", err)
	}
	if err := file.validate().ToAggregate(); err != nil {
		return Record{}, err
	}
	r := Record{NodeUID: file.NodeUID}
	for _, t := range file.Taints {
		r.Taints = append(r.Taints, Taint(t))
	}
	r.Taints = sorted(r.Taints)
	return r, nil
}

func (f *recordFile) validate() (errs field.ErrorList) {
	if f.Version != recordVersion {
		errs = append(errs, field.Invalid(field.NewPath("version"), f.Version, "must be 1"))
	}
	if f.NodeUID == "" {
		errs = append(errs, field.Required(field.NewPath("nodeUID"), "the UID of the Node"))
	}
	for i, t := range f.Taints {
		path := field.NewPath("taints").Index(i)
		if !slices.Contains(Effects, t.Effect) {
			errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect, Effects))
		} else if !Taint(t).valid() {
			errs = append(errs, field.Invalid(path.Child("key"), t.Key,
				"must be the type of a condition of eviction plugins: node.katalyst.kubewharf.io/<name>"))
		}
	}
	return errs
}
