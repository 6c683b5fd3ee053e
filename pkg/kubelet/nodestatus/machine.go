package nodestatus

import (
	"fmt"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
)

// Machine is a MachineSource whose hardware is read once: it does not change without a reboot.
type Machine struct {
	source MachineSource
	info   *cadvisorapi.MachineInfo
}

// NewMachine reads the machine's description from source, usually cAdvisor.
func NewMachine(source MachineSource) (*Machine, error) {
	read, err := source.MachineInfo()
	if err != nil {
		return nil, fmt.Errorf("reading machine info: %w", err)
	}
	info := read.Clone()
	// With a timestamp, the metrics of the machine would be exported with that time and become stale.
	info.Timestamp = time.Time{}
	return &Machine{source: source, info: info}, nil
}

// MachineInfo returns the hardware at start. The result is shared and must not be modified; the error is always nil.
func (m *Machine) MachineInfo() (*cadvisorapi.MachineInfo, error) { return m.info, nil }

// VersionInfo returns the versions of kernel and operating system. It reads them with each call.
func (m *Machine) VersionInfo() (*cadvisorapi.VersionInfo, error) { return m.source.VersionInfo() }
