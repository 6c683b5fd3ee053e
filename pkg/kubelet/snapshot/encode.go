package snapshot

import "fmt"

// MaxPods is how many pods an encoded snapshot, or an encoded state of package policy, may have: far more than a node
// can run.
const MaxPods = 1 << 12

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
		return fmt.Errorf("unknown signal %q", text)
	}
	*s = found
	return nil
}
