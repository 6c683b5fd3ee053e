// Package shortcall makes system calls that take microseconds without telling the Go runtime about them.
//
// The runtime wakes up its monitor thread with the first call that it is told about (runtime.entersyscall), since the
// call may block. That thread wakes up again each 20 µs until the process is idle, which took 0.2 ms of CPU time for a
// reading of memory counters of 0.15 ms.
//
// Such a call holds up garbage collection while it runs. And while the monitor thread sleeps, other goroutines may not
// learn that a socket or a file is ready. So this is only for files and timers of the kernel, which need no other
// process and no disk, and Calls limits how long it lasts.
package shortcall

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// When calls have taken longCall together, the runtime is told about the next one. After a single call that took longer
// than longCall, it is told about all calls for toldFor.
const (
	longCall = time.Millisecond
	toldFor  = time.Second
)

// Calls makes calls of which a few may take long: the kernel may have to add up statistics of all CPUs, to reclaim
// memory, or to wait for a lock. It tells the runtime about calls that follow a long one. The zero value is ready to
// use. It is not safe for concurrent use.
type Calls struct {
	// Told is true if the runtime is to be told about every call: for file systems that need another process or a disk.
	Told bool
	// until is the end of the time in which the runtime is told about every call, because one took long.
	until time.Time
	// untold is how long calls have taken together since the runtime was last told about one.
	untold time.Duration
}

// short reports whether a call that begins now may be made without telling the runtime.
func (c *Calls) short(now time.Time) bool {
	return !c.Told && c.untold < longCall && !now.Before(c.until)
}

// took records when a call began, how long it took, and whether it was short.
func (c *Calls) took(began time.Time, d time.Duration, short bool) {
	if short {
		c.untold += d
	} else {
		c.untold = 0
	}
	if d > longCall {
		c.until = began.Add(d + toldFor)
	}
}

// Read reads a file from its beginning into a buffer, which must not be empty. It returns how much that was.
func (c *Calls) Read(fd int, into []byte) (n int, err error) {
	for {
		began := time.Now()
		short := c.short(began)
		var read uintptr
		var errno unix.Errno
		// The offset is zero, whichever of the last arguments an architecture takes it from.
		if short {
			read, _, errno = unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&into[0])),
				uintptr(len(into)), 0, 0, 0)
		} else {
			read, _, errno = unix.Syscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&into[0])),
				uintptr(len(into)), 0, 0, 0)
		}
		c.took(began, time.Since(began), short)
		switch errno {
		case 0:
			return int(read), nil
		case unix.EINTR: // A signal came: again.
		default:
			return 0, errno
		}
	}
}

// State reads the inode and the number of links of what is at a path, which ends with a zero byte (statx(2)).
func (c *Calls) State(path []byte, into *unix.Statx_t) error {
	const wanted = unix.STATX_INO | unix.STATX_NLINK
	at := unix.AT_FDCWD
	began := time.Now()
	short := c.short(began)
	var errno unix.Errno
	if short {
		_, _, errno = unix.RawSyscall6(unix.SYS_STATX, uintptr(at), uintptr(unsafe.Pointer(&path[0])), 0, wanted,
			uintptr(unsafe.Pointer(into)), 0)
	} else {
		_, _, errno = unix.Syscall6(unix.SYS_STATX, uintptr(at), uintptr(unsafe.Pointer(&path[0])), 0, wanted,
			uintptr(unsafe.Pointer(into)), 0)
	}
	c.took(began, time.Since(began), short)
	if errno != 0 {
		return errno
	}
	return nil
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

// Clock returns the time of a clock of the kernel (clock_gettime(2)).
func Clock(id int32) (t unix.Timespec, err error) {
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		return unix.Timespec{}, errno
	}
	return t, nil
}
