package snapshot

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxErrorText is how much of the text of an error is encoded, in bytes.
const maxErrorText = 4 << 10

// reasons are the errors that errors.Is finds again in an error that was encoded and decoded.
var reasons = []struct {
	name string
	err  error
}{
	{"NotReported", ErrNotReported},
	{"NoPodsCgroup", ErrNoPodsCgroup},
	{"Implausible", ErrImplausible},
	{"NeverObserved", errNeverObserved},
}

// encodedError is an error as text, with the name of its reason if it has one.
type encodedError struct {
	Reason  errorReason `json:"reason,omitzero"`
	Message string      `json:"message"`
}

// errorReason is the name of one of the reasons, or empty.
type errorReason string

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *errorReason) UnmarshalText(text []byte) error {
	*r = errorReason(text)
	if r.err() == nil {
		names := make([]string, len(reasons))
		for i := range reasons {
			names[i] = reasons[i].name
		}
		return notAmong("reason", text, names)
	}
	return nil
}

func (r errorReason) err() error {
	for i := range reasons {
		if reasons[i].name == string(r) {
			return reasons[i].err
		}
	}
	return nil
}

func encodeError(err error) *encodedError {
	if err == nil {
		return nil
	}
	e := &encodedError{Message: err.Error()}
	e.Message = strings.ToValidUTF8(e.Message[:min(len(e.Message), maxErrorText)], "")
	for i := range reasons {
		if errors.Is(err, reasons[i].err) {
			e.Reason = errorReason(reasons[i].name)
		}
	}
	return e
}

func (e *encodedError) decode() error {
	if e == nil {
		return nil
	}
	reason := e.Reason.err()
	if reason != nil && reason.Error() == e.Message {
		return reason
	}
	return &decodedError{message: e.Message, reason: reason}
}

// decodedError is an error that was encoded and decoded.
type decodedError struct {
	message string
	reason  error
}

func (e *decodedError) Error() string { return e.message }

func (e *decodedError) Unwrap() error { return e.reason }

var deviceNames = [NumDevices]string{NodeDevice: "Node", ImageDevice: "Image"}

func deviceName(i int) string { return deviceNames[i] }

// MarshalText implements encoding.TextMarshaler.
func (d Device) MarshalText() ([]byte, error) { return nameAt(deviceNames[:], int(d), "device") }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Device) UnmarshalText(text []byte) error {
	i, err := indexOf(deviceNames[:], text, "device")
	*d = Device(i)
	return err
}

var inFlightStateNames = []string{Stopping: "Stopping", Stopped: "Stopped", Failed: "Failed"}

// MarshalText implements encoding.TextMarshaler.
func (s InFlightState) MarshalText() ([]byte, error) {
	return nameAt(inFlightStateNames, int(s), "state of an eviction")
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *InFlightState) UnmarshalText(text []byte) error {
	i, err := indexOf(inFlightStateNames, text, "state of an eviction")
	*s = InFlightState(i)
	return err
}

var killerNames = []string{PodWorker: "PodWorker", EvictionAPI: "EvictionAPI", DeleteAPI: "DeleteAPI"}

// String returns the name in configuration, metrics and logs.
func (k Killer) String() string {
	if int(k) >= len(killerNames) {
		return "unknown"
	}
	return killerNames[k]
}

// MarshalText implements encoding.TextMarshaler.
func (k Killer) MarshalText() ([]byte, error) { return nameAt(killerNames, int(k), "killer") }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Killer) UnmarshalText(text []byte) error {
	i, err := indexOf(killerNames, text, "killer")
	*k = Killer(i)
	return err
}

// MarshalText implements encoding.TextMarshaler: a signal is written as its name.
func (s Signal) MarshalText() ([]byte, error) {
	if s >= NumSignals {
		return nil, fmt.Errorf("there is no signal %d", s)
	}
	return []byte(s.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Signal) UnmarshalText(text []byte) error {
	if string(text) == NoSignal.String() {
		*s = NoSignal
		return nil
	}
	found, ok := ParseSignal(string(text))
	if !ok {
		names := []string{NoSignal.String()}
		for _, signal := range AllSignals() {
			names = append(names, signal.String())
		}
		return notAmong("signal", text, names)
	}
	*s = found
	return nil
}

func nameAt(names []string, i int, what string) ([]byte, error) {
	if i >= len(names) {
		return nil, fmt.Errorf("there is no %s %d", what, i)
	}
	return []byte(names[i]), nil
}

func indexOf(names []string, text []byte, what string) (int, error) {
	i := slices.Index(names, string(text))
	if i < 0 {
		return 0, notAmong(what, text, names)
	}
	return i, nil
}

func notAmong(what string, text []byte, names []string) error {
	return fmt.Errorf("unknown %s %.64q: must be one of %s", what, text, strings.Join(names, ", "))
}
