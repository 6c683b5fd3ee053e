// Package exacttimer has timers of the kernel. A process in which nothing else runs is late by up to a millisecond with
// those of the Go runtime, and wakes up twice: the runtime waits for the whole milliseconds that are left, and then for
// another one (runtime/netpoll_epoll.go).
package exacttimer

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/shortcall"
)

// Timer is a file that can be read once the time has come (timerfd_create(2)). The goroutine that waits reads it
// itself: if another one did, and passed the time on, the Go runtime would wake up a second thread each time.
type Timer struct {
	file    *os.File
	conn    syscall.RawConn
	fd      int
	expired func(fd uintptr) bool
}

// New returns a timer of the monotonic clock whose time has come. It fails if the kernel or the Go runtime has none.
func New() (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	t := &Timer{file: os.NewFile(uintptr(fd), "timer"), fd: fd, expired: expired}
	// A file that the runtime cannot wait for, as beyond the limit of epoll(7), has no deadlines.
	if err = t.file.SetReadDeadline(time.Time{}); err == nil {
		t.conn, err = t.file.SyscallConn()
	}
	if err == nil {
		err = shortcall.SetTimer(fd, 0)
	}
	if err != nil {
		_ = t.file.Close() // It is not used.
		return nil, fmt.Errorf("timer: %w", err)
	}
	return t, nil
}

func expired(fd uintptr) bool {
	_, err := shortcall.Expirations(int(fd))
	return !errors.Is(err, unix.EAGAIN)
}

// Set sets the time, so long from now. It must not be called after Stop.
func (t *Timer) Set(d time.Duration) { _ = shortcall.SetTimer(t.fd, d) } // It fails for what is not a timer only.

// Wait returns when the time has come, once for each time that was set, and at once after Stop.
func (t *Timer) Wait() { _ = t.conn.Read(t.expired) } // It fails if the file is closed.

// Ring sets the time to now. It may be called from any goroutine, also after Stop.
func (t *Timer) Ring() {
	_ = t.conn.Control(func(fd uintptr) { _ = shortcall.SetTimer(int(fd), 0) }) // See Set and Wait.
}

// Stop closes the file.
func (t *Timer) Stop() { _ = t.file.Close() } // Nothing was written.
