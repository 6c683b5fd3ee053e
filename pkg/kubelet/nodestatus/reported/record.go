package reported

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// recordVersion is the version of the format. Later releases add fields without a new version.
	recordVersion = 1
	// MaxRecordSize is the size of the largest record, in bytes. Fields that are being removed are recorded beside
	// MaxFields new ones, each with a key of at most 317 characters.
	MaxRecordSize = 2 << 20
	maxKey        = 512
)

// Record has the fields that the agent has written to a Node for plugins, or is about to write. It has no values.
type Record struct {
	// NodeUID is empty if there is no record.
	NodeUID types.UID
	// Fields are in the order of kind and key, each once.
	Fields []Field
}

// Of returns the fields of the Node with this UID; none of another Node of the same name.
func (r Record) Of(node types.UID) []Field {
	if r.NodeUID != node {
		return nil
	}
	return r.Fields
}

// Equal reports whether two records are the same.
func (r Record) Equal(o Record) bool {
	return r.NodeUID == o.NodeUID && slices.Equal(r.Fields, o.Fields)
}

// recordFile is the format of a record.
type recordFile struct {
	Version int               `json:"version"`
	NodeUID types.UID         `json:"nodeUID"`
	Fields  map[Kind][]string `json:"fields"`
}

// Encode returns the record as JSON, which DecodeRecord reads.
func (r Record) Encode() ([]byte, error) {
	file := recordFile{Version: recordVersion, NodeUID: r.NodeUID, Fields: map[Kind][]string{}}
	for _, f := range sorted(r.Fields) {
		file.Fields[f.Kind] = append(file.Fields[f.Kind], f.Key)
	}
	return json.Marshal(file)
}

// DecodeRecord reads a record. The data may come from anywhere; the error names the field, its value and what is
// allowed.
func DecodeRecord(data []byte) (Record, error) {
	var file recordFile
	if err := json.Unmarshal(data, &file); err != nil {
		return Record{}, fmt.Errorf("not a record of reported fields: %w", err)
	}
	if err := file.validate().ToAggregate(); err != nil {
		return Record{}, err
	}
	r := Record{NodeUID: file.NodeUID}
	for kind, keys := range file.Fields {
		for _, key := range keys {
			r.Fields = append(r.Fields, Field{kind, key})
		}
	}
	r.Fields = sorted(r.Fields)
	return r, nil
}

func (f *recordFile) validate() (errs field.ErrorList) {
	if f.Version != recordVersion {
		errs = append(errs, field.Invalid(field.NewPath("version"), f.Version, "must be 1"))
	}
	if f.NodeUID == "" {
		errs = append(errs, field.Required(field.NewPath("nodeUID"), "the UID of the Node"))
	}
	for kind, keys := range f.Fields {
		path := field.NewPath("fields")
		if !slices.Contains(Kinds, kind) {
			errs = append(errs, field.NotSupported(path, kind, Kinds))
		}
		for i, key := range keys {
			if !mayRecord(key) {
				errs = append(errs, field.Invalid(path.Key(string(kind)).Index(i), key[:min(len(key), maxKey)],
					"must be a key with a domain that is not kubernetes.io or k8s.io, or below them"))
			}
		}
	}
	return errs
}

// mayRecord reports whether plugins can report a key, by the rules of package merge. So a record that somebody else has
// made cannot have the agent remove a label of Kubernetes.
func mayRecord(key string) bool {
	domain, _, found := strings.Cut(strings.ToLower(key), "/")
	return found && domain != "" && len(key) <= maxKey &&
		!strings.HasSuffix("."+domain, ".kubernetes.io") && !strings.HasSuffix("."+domain, ".k8s.io")
}
