package kubelet

import (
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// uptime keeps terminations over restarts of the agent, but not those that are begun only because the machine goes down: at the next boot
// such a pod can start again, unless the API server has seen its end by then. It would be failed for nothing otherwise, where stock starts it.
type uptime struct {
	podworkers.Terminations
	// goingDown is an error while the machine shuts down.
	goingDown func() error
}

// Keep says that it keeps what it leaves out: there was room.
func (u uptime) Keep(record terminations.Record) bool {
	if record.Cause == terminations.Kill && u.goingDown() != nil {
		return true
	}
	return u.Terminations.Keep(record)
}

// terminations are what the pod workers keep.
func (b *build) terminations() podworkers.Terminations {
	return uptime{Terminations: b.workers.begun, goingDown: func() error { return b.pressure.shutdown.ShutdownStatus() }}
}
