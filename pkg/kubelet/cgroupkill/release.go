package cgroupkill

import (
	"golang.org/x/sys/unix"
)

// release frees the memory of killed processes in the cgroup, with the CPU share of the agent: that of a BestEffort
// pod may be so small that a process which uses much memory takes seconds to exit. See process_mrelease(2), Linux
// 5.15. It does nothing to a process that is not being killed, so that a PID which is reused is no danger. The kernel
// frees all of a process in one call, which may take long: Kill does not wait for it. The result is closed at its end;
// if running is not, nothing is begun and running is returned.
func (k *Killer) release(cgroup string, running <-chan struct{}) <-chan struct{} {
	select {
	case <-running:
	default:
		return running
	}
	members, err := k.tree.pids(cgroup)
	if err != nil || len(members) == 0 {
		return running
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, m := range members {
			releaseProcess(m.pid)
		}
	}()
	return done
}

// releaseProcess ignores errors: the process frees its memory by itself, later.
func releaseProcess(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_, _, _ = unix.Syscall(unix.SYS_PROCESS_MRELEASE, uintptr(fd), 0, 0)
}
