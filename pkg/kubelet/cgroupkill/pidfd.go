package cgroupkill

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// batch bounds the pidfds that are open at once.
const batch = 256

// signal sends SIGKILL to the processes in the cgroup, a batch at a time.
func (k *Killer) signal(cgroup string) error {
	pids, err := k.tree.pids(cgroup)
	errs := []error{err}
	for first := 0; first < len(pids); first += batch {
		errs = append(errs, k.signalBatch(cgroup, pids[first:min(first+batch, len(pids))]))
	}
	return errors.Join(errs...)
}

// signalBatch opens the processes, and signals those that are in the cgroup after that. A PID that is in the cgroup
// after its pidfd was opened belongs either to the process that was opened, or that process is dead and the signal has
// no effect.
func (k *Killer) signalBatch(cgroup string, found []member) error {
	open := map[int]int{}
	defer func() {
		for _, fd := range open {
			_ = unix.Close(fd)
		}
	}()
	var errs []error
	for _, m := range found {
		if m.pid <= 1 || m.pid == os.Getpid() {
			continue
		}
		fd, err := unix.PidfdOpen(m.pid, 0)
		if err == nil {
			open[m.pid] = fd
		} else if !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("opening process %d: %w", m.pid, err))
		}
	}
	k.opened()
	present, err := k.tree.pids(cgroup)
	errs = append(errs, err)
	for _, m := range present {
		fd, opened := open[m.pid]
		if !opened {
			continue
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("killing process %d: %w", m.pid, err))
		}
	}
	return errors.Join(errs...)
}
