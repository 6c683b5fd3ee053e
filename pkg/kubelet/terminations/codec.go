package terminations

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

const (
	// version is the only version of the format so far. Unknown fields are ignored, so that a release may add fields
	// within a version; a field that earlier releases must not ignore needs a new version.
	version = 1
	// maxSize is the size limit of a file in bytes, far above the size of any record.
	maxSize = 64 << 10
)

// file is the JSON form of a Record.
type file struct {
	Version      int                 `json:"version"`
	UID          types.UID           `json:"uid"`
	Namespace    string              `json:"namespace"`
	Name         string              `json:"name"`
	Cause        Cause               `json:"cause"`
	Status       *podkill.Disruption `json:"status,omitempty"`
	GraceSeconds int64               `json:"graceSeconds"`
	Requested    time.Time           `json:"requested"`
	Deadline     time.Time           `json:"deadline"`
}

// encode returns the JSON form of a record, or an error if decode would reject it.
func encode(r Record) ([]byte, error) {
	f := file{
		Version: version, UID: r.UID, Namespace: r.Namespace, Name: r.Name, Cause: r.Cause, Status: r.Disruption,
		GraceSeconds: r.GracePeriodSeconds, Requested: r.Requested.UTC(), Deadline: r.Deadline.UTC(),
	}
	data, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	_, err = decode(data)
	return data, err
}

// decode reads a record. An error names the invalid field, its value and the valid values.
func decode(data []byte) (Record, error) {
	if len(data) > maxSize {
		return Record{}, fmt.Errorf("size: %d bytes, must be at most %d", len(data), maxSize)
	}
	// The version is checked first: the other fields of a later version are unknown.
	var v struct {
		Version *int `json:"version"`
	}
	if err := parse(data, &v); err != nil {
		return Record{}, err
	}
	if v.Version == nil {
		return Record{}, field.Required(field.NewPath("version"), fmt.Sprintf("supported value: %d", version))
	}
	if *v.Version != version {
		return Record{}, field.NotSupported(field.NewPath("version"), *v.Version, []string{fmt.Sprint(version)})
	}
	var f file
	if err := parse(data, &f); err != nil {
		return Record{}, err
	}
	if errs := f.validate(); len(errs) > 0 {
		return Record{}, errs.ToAggregate()
	}
	return Record{
		UID: f.UID, Namespace: f.Namespace, Name: f.Name, Cause: f.Cause, Disruption: f.Status,
		GracePeriodSeconds: f.GraceSeconds, Requested: f.Requested, Deadline: f.Deadline,
	}, nil
}

// parse reads exactly one JSON value.
func parse(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field != "" {
			return fmt.Errorf("%s: a %s, must be of type %s", wrong.Field, wrong.Value, wrong.Type)
		}
		return fmt.Errorf("not a JSON object of a termination: %w", err)
	}
	return nil
}

func (f *file) validate() field.ErrorList {
	var errs field.ErrorList
	if f.UID == "" {
		errs = append(errs, field.Required(field.NewPath("uid"), "the UID of the pod"))
	}
	if causes := []Cause{Eviction, Kill, Deletion}; !slices.Contains(causes, f.Cause) {
		errs = append(errs, field.NotSupported(field.NewPath("cause"), f.Cause, causes))
	}
	if f.GraceSeconds < 1 {
		errs = append(errs, field.Invalid(field.NewPath("graceSeconds"), f.GraceSeconds, "must be at least 1"))
	}
	if f.Requested.IsZero() {
		errs = append(errs, field.Required(field.NewPath("requested"), "when the termination was requested"))
	}
	if f.Deadline.Before(f.Requested) {
		errs = append(errs, field.Invalid(field.NewPath("deadline"), f.Deadline, "must not be before requested"))
	}
	if f.Status != nil {
		errs = append(errs, validateDisruption(f.Status, field.NewPath("status"))...)
	}
	return errs
}

func validateDisruption(d *podkill.Disruption, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	phases := []v1.PodPhase{"", v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed}
	if !slices.Contains(phases, d.Phase) {
		errs = append(errs, field.NotSupported(path.Child("phase"), d.Phase, phases))
	}
	statuses := []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown}
	for i, c := range d.Conditions {
		at := path.Child("conditions").Index(i)
		if c.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), "the type of the condition"))
		}
		if !slices.Contains(statuses, c.Status) {
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, statuses))
		}
	}
	return errs
}
