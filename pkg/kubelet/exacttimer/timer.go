// Package exacttimer has timers of the kernel. A process in which nothing else runs is late by up to a millisecond with
// those of the Go runtime, and wakes up twice: the runtime waits for the whole milliseconds that are left, and then for
// another one (runtime/netpoll_epoll.go).
package exacttimer

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/shortcall"
)

// timer is a file that can be read once the time has come (timerfd_create(2)).
type timer struct {
	file *os.File
	conn syscall.RawConn
	// fd is the descriptor of the file.
	fd      int
	c       chan time.Time
	running sync.WaitGroup
}

// New returns a timer that sends the time on its channel after d. It follows the monotonic clock. Unlike with other
// timers, a time from before Reset may still be received after it, and Reset must not be called after Stop. If the
// kernel provides no timer, it is one of the Go runtime.
func New(d time.Duration) clock.Timer {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return clock.RealClock{}.NewTimer(d)
	}
	t := &timer{file: os.NewFile(uintptr(fd), "timer"), fd: fd, c: make(chan time.Time, 1)}
	// A file that the runtime cannot wait for, as beyond the limit of epoll(7), has no deadlines.
	failure := t.file.SetReadDeadline(time.Time{})
	if t.conn, err = t.file.SyscallConn(); failure != nil || err != nil || !t.Reset(d) {
		_ = t.file.Close() // It is not used.
		return clock.RealClock{}.NewTimer(d)
	}
	t.running.Go(t.run)
	return t
}

// run sends the time until the file is closed.
func (t *timer) run() {
	var err error
	expired := func(fd uintptr) bool {
		_, err = shortcall.Expirations(int(fd))
		return !errors.Is(err, unix.EAGAIN)
	}
	for {
		if failure := t.conn.Read(expired); failure != nil || err != nil {
			return
		}
		select {
		case t.c <- time.Now():
		default: // The one before was not received yet.
		}
	}
}

// C implements clock.Timer.
func (t *timer) C() <-chan time.Time { return t.c }

// Stop implements clock.Timer. It does not report whether the time had come.
func (t *timer) Stop() bool {
	err := t.file.Close()
	t.running.Wait()
	return err == nil
}

// Reset implements clock.Timer. It does not report whether the time had come.
func (t *timer) Reset(d time.Duration) bool { return shortcall.SetTimer(t.fd, d) == nil }
