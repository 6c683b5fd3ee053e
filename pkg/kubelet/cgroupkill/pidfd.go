package cgroupkill

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// batchSize bounds the number of open pidfds.
const batchSize = 256

// signalAll sends SIGKILL to the processes in the cgroup, in batches. all is true if no process is in the cgroup
// afterwards that has not got it.
func (k *Killer) signalAll(cgroup string) (all bool, err error) {
	pids, err := k.tree.pids(cgroup)
	errs, signalled := []error{err}, map[int]bool{1: true, os.Getpid(): true}
	for first := 0; first < len(pids); first += batchSize {
		errs = append(errs, k.signalBatch(cgroup, pids[first:min(first+batchSize, len(pids))], signalled))
	}
	left, err := k.tree.pids(cgroup)
	other := slices.ContainsFunc(left, func(m member) bool { return !signalled[m.pid] })
	return !other, errors.Join(append(errs, err)...)
}

// signalBatch opens a pidfd for each process, and signals those whose PID is in the cgroup afterwards. Such a PID
// either belongs to the process of the pidfd, or that process has ended and the signal has no effect. It adds these,
// and those that have ended, to signalled.
func (k *Killer) signalBatch(cgroup string, found []member, signalled map[int]bool) error {
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
		switch {
		case err == nil:
			open[m.pid] = fd
		case errors.Is(err, unix.ESRCH): // It has ended.
			signalled[m.pid] = true
		default:
			errs = append(errs, fmt.Errorf("opening process %d: %w", m.pid, err))
		}
	}
	k.onOpened()
	present, err := k.tree.pids(cgroup)
	errs = append(errs, err)
	for _, m := range present {
		fd, opened := open[m.pid]
		if !opened {
			continue
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("killing process %d: %w", m.pid, err))
			continue
		}
		signalled[m.pid] = true
	}
	return errors.Join(errs...)
}
