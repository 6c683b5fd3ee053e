package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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

func (r *rulesState) validate() error {
	for i := range r.Thresholds {
		t := &r.Thresholds[i]
		if t.Signal == snapshot.NoSignal {
			return fmt.Errorf("thresholds[%d].signal is missing", i)
		}
		if t.GracePeriodElapsed < 0 || t.NotMetFor < 0 {
			return fmt.Errorf("thresholds[%d] has a negative duration", i)
		}
	}
	for i, sample := range r.MemorySamples {
		if sample == nil {
			continue
		}
		if !slices.IsSortedFunc(sample.Pods, podSample.compare) {
			return fmt.Errorf("memorySamples[%d].pods is not in the order of UIDs", i)
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
	if len(list) > len(h) || slices.Contains(list, nil) {
		return fmt.Errorf("memorySamples must have at most %d elements, and each must be an object", len(h))
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
		return fmt.Errorf("unknown status %q of a threshold", text)
	}
	*s = thresholdStatus(i)
	return nil
}
