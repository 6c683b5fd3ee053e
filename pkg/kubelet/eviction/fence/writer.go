package fence

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// deadline is the longest time that setting a fence may take, the wait for the writer included.
	deadline = 20 * time.Millisecond
	// A signal that arrives before the thread has entered the kernel ends nothing, so that it is repeated.
	signalPeriod, signals = 500 * time.Microsecond, 20
)

// ErrDeadline is returned when the kernel did not set the limit in time.
var ErrDeadline = errors.New("the limit was not set in time")

// writer executes writes, one at a time, in a goroutine of its own. Each is executed by one thread of the kernel, which
// a signal can reach: usually that of the caller, which waits meanwhile, so that no other one has to wake up.
type writer struct {
	requests chan *request
	// tid is the ID of the thread, 0 while there is no write.
	tid atomic.Int64
	// limit is deadline. Tests change it.
	limit time.Duration
}

// request is one write. It ends in one of two ways: the writer ends it, or the caller leaves it to the writer, which
// then undoes it once the kernel lets go.
type request struct {
	write func(expired func() bool) error
	undo  func()
	err   error
	done  chan struct{}
	// expired is set at the deadline: write must return then.
	expired atomic.Bool
	// settled is set by the first of the writer and the leaving caller.
	settled atomic.Bool
}

func newWriter() *writer { return &writer{requests: make(chan *request), limit: deadline} }

// run executes requests until ctx ends.
func (w *writer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-w.requests:
			w.execute(r)
		}
	}
}

func (w *writer) execute(r *request) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w.tid.Store(int64(unix.Gettid()))
	defer w.tid.Store(0)
	r.err = r.write(r.expired.Load)
	if r.settled.CompareAndSwap(false, true) {
		close(r.done)
	} else {
		r.undo()
	}
}

// do has the writer execute write. At the deadline it has expired return true, and ends the system call of the thread
// by a signal that the Go runtime ignores (SIGURG, which it uses for preemption): both loops of the kernel that set a
// limit (mem_cgroup_resize_max, memory_max_write) end with a signal, the latter without an error, after the pass of
// reclaim under way. If the thread has not returned within 10 ms of that, left is true: it still uses what write uses,
// and calls undo when it has ended. Until then other writes fail at their deadline.
func (w *writer) do(write func(expired func() bool) error, undo func()) (left bool, err error) {
	r := &request{write: write, undo: undo, done: make(chan struct{})}
	timer := time.NewTimer(w.limit)
	defer timer.Stop()
	select {
	case w.requests <- r:
	case <-timer.C:
		return false, ErrDeadline
	}
	select {
	case <-r.done:
		return false, r.err
	case <-timer.C:
	}
	r.expired.Store(true)
	for range signals {
		if tid := w.tid.Load(); tid != 0 {
			_ = unix.Tgkill(os.Getpid(), int(tid), unix.SIGURG)
		}
		timer.Reset(signalPeriod)
		select {
		case <-r.done:
			return false, r.err
		case <-timer.C:
		}
	}
	if r.settled.CompareAndSwap(false, true) {
		return true, ErrDeadline
	}
	<-r.done
	return false, r.err
}
