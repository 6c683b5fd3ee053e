package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/strictjson"
)

// A State is encoded by package encoding/json, without loss: what Decide does with a state that was written and read
// again is the same as with the original.

// stateLimits are far above what a state can come to.
var stateLimits = strictjson.Limits{
	Bytes: 16 << 20, String: 1 << 10, Depth: 8, Elements: 2 * int(snapshot.NumSignals), Total: 1 << 19,
	Fields: map[string]int{"pods": snapshot.MaxPods},
}

// DecodeState decodes a state that may come from anywhere. An error names the field that is wrong.
func DecodeState(data []byte) (State, error) {
	var s State
	if err := strictjson.Unmarshal(data, &s, stateLimits); err != nil {
		return State{}, fmt.Errorf("state: %w", err)
	}
	if err := s.Enforced.validate(); err != nil {
		return State{}, fmt.Errorf("state: enforced: %w", err)
	}
	if s.DryRun != nil {
		if err := s.DryRun.validate(); err != nil {
			return State{}, fmt.Errorf("state: dryRun: %w", err)
		}
	}
	return s, nil
}

// maxElapsed bounds how long something may have lasted, and minUpdatedYear and maxUpdatedYear when it was last seen, so
// that no sum of durations overflows.
const (
	maxElapsed                     = 1 << 60 * time.Nanosecond
	minUpdatedYear, maxUpdatedYear = 1970, 2200
)

func (r *rulesState) validate() error {
	for i := range r.Thresholds {
		t := &r.Thresholds[i]
		field := fmt.Sprintf("thresholds[%d].", i)
		if t.Signal == snapshot.NoSignal {
			return fmt.Errorf("%ssignal: none: must be a signal", field)
		}
		if year := t.Updated.Year(); year < minUpdatedYear || year > maxUpdatedYear {
			return fmt.Errorf("%supdated: %s: must be in the years from %d to %d", field, t.Updated, minUpdatedYear,
				maxUpdatedYear)
		}
		if d := t.GracePeriodElapsed; d < 0 || d > maxElapsed {
			return fmt.Errorf("%sgracePeriodElapsedNanoseconds: %d: must be from 0 to %d", field, d, maxElapsed)
		}
		if d := t.NotMetFor; d < 0 || d > maxElapsed {
			return fmt.Errorf("%snotMetForNanoseconds: %d: must be from 0 to %d", field, d, maxElapsed)
		}
	}
	for i, sample := range r.MemorySamples {
		if sample == nil {
			continue
		}
		for j := 1; j < len(sample.Pods); j++ {
			if uid := sample.Pods[j].UID; uid <= sample.Pods[j-1].UID {
				return fmt.Errorf("memorySamples[%d].pods[%d].uid: %q: must be after %q, in the order of UIDs", i, j, uid,
					sample.Pods[j-1].UID)
			}
		}
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (s conditionStates) MarshalJSON() ([]byte, error) {
	return strictjson.MarshalNamed(s[:], conditionName)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *conditionStates) UnmarshalJSON(data []byte) error {
	return strictjson.UnmarshalNamed(data, s[:], conditionName)
}

func conditionName(i int) string { return string(ConditionTypes[i]) }

// MarshalJSON implements json.Marshaler.
func (s signalStates) MarshalJSON() ([]byte, error) { return strictjson.MarshalNamed(s[:], signalName) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *signalStates) UnmarshalJSON(data []byte) error {
	return strictjson.UnmarshalNamed(data, s[:], signalName)
}

func signalName(i int) string { return snapshot.Signal(i).String() }

// MarshalJSON implements json.Marshaler.
func (s needStates) MarshalJSON() ([]byte, error) { return strictjson.MarshalNamed(s[:], groupName) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *needStates) UnmarshalJSON(data []byte) error {
	return strictjson.UnmarshalNamed(data, s[:], groupName)
}

func groupName(i int) string {
	return [numGroups]string{
		memoryGroup: "memory", pidGroup: "pids", nodeBytesGroup: "nodeDeviceBytes", nodeInodesGroup: "nodeDeviceInodes",
		imageBytesGroup: "imageDeviceBytes", imageInodesGroup: "imageDeviceInodes",
	}[i]
}

// MarshalJSON implements json.Marshaler: samples that are not there are left out.
func (h history) MarshalJSON() ([]byte, error) {
	n := slices.Index(h[:], nil)
	if n < 0 {
		n = len(h)
	}
	return json.Marshal(h[:n])
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *history) UnmarshalJSON(data []byte) error {
	var list []*sample
	if err := strictjson.Decode(data, &list); err != nil {
		return err
	}
	if len(list) > len(h) {
		return fmt.Errorf("%d samples: must be at most %d", len(list), len(h))
	}
	*h = history{}
	copy(h[:], list)
	return nil
}

var statusNames = [...]string{neverObserved: "NeverObserved", unknown: "Unknown", notMet: "NotMet", met: "Met"}

// MarshalText implements encoding.TextMarshaler.
func (s thresholdStatus) MarshalText() ([]byte, error) {
	if int(s) >= len(statusNames) {
		return nil, errors.New("unknown status of a threshold")
	}
	return []byte(statusNames[s]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *thresholdStatus) UnmarshalText(text []byte) error {
	i := slices.Index(statusNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown status %.64q: must be one of %s", text, strings.Join(statusNames[:], ", "))
	}
	*s = thresholdStatus(i)
	return nil
}
