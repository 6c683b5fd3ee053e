// Package shortcall makes system calls that take microseconds without telling the Go runtime about them.
//
// The runtime wakes up its monitor thread with the first call that it is told about (runtime.entersyscall), since the
// call may block. That thread wakes up again each 20 µs until the process is idle, which took 0.2 ms of CPU time for a
// reading of memory counters of 0.15 ms.
//
// A call that waits would hold up garbage collection and, for lack of a processor, other goroutines. So these are for
// files and timers of the kernel only that need no other process and no disk.
package shortcall

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// After a call that took longer than longCall, the runtime is told about the next toldCalls calls of the same kind.
const (
	longCall  = time.Millisecond
	toldCalls = 100
)

// Guard remembers calls of one kind that took long: the kernel adds up statistics of all CPUs for some files, and may
// wait for a lock, of its file systems for example. The zero Guard remembers none. It is not safe for concurrent use.
type Guard struct{ told int }

// Allows reports whether a call may be made without telling the runtime. Each answer is for one call.
func (g *Guard) Allows() bool {
	if g.told == 0 {
		return true
	}
	g.told--
	return false
}

// Took records how long a call took.
func (g *Guard) Took(d time.Duration) {
	if d > longCall {
		g.told = toldCalls
	}
}

// ReadAt reads from a place in a file into a buffer, which must not be empty. It returns how much that was, zero at the
// end of the file.
func ReadAt(fd int, into []byte, offset int64) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&into[0])),
			uintptr(len(into)), uintptr(offset), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR: // A signal came: again.
		default:
			return 0, errno
		}
	}
}

// Expirations reads how often a timer has expired since that was last read (timerfd_create(2)). It returns EAGAIN if it
// has not; the timer must be one that does not block.
func Expirations(fd int) (n uint64, err error) {
	_, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&n)), unsafe.Sizeof(n))
	if errno != 0 {
		return 0, errno
	}
	return n, nil
}

// SetTimer sets a timer to expire once after d, at once if that is not positive.
func SetTimer(fd int, d time.Duration) error {
	// Zero would stop the timer.
	value := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, d.Nanoseconds()))}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(fd), 0, uintptr(unsafe.Pointer(&value)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Stat reads what is known of an open file.
func Stat(fd int, into *unix.Stat_t) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(into)), 0); errno != 0 {
		return errno
	}
	return nil
}

// Clock returns the time of a clock of the kernel (clock_gettime(2)).
func Clock(id int32) (t unix.Timespec, err error) {
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		return unix.Timespec{}, errno
	}
	return t, nil
}
