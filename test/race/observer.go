package race

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// period is the time between two observations.
	period = time.Millisecond
	// priority is the nice value of the observer: the processes that it observes must not delay it.
	priority = -15
)

// sample is one observation. Amounts are in bytes.
type sample struct {
	at time.Time
	// pods is the usage of all pods, page cache included; hogs that of the hogs, limit the least limit of a hog.
	pods, hogs, limit int64
}

// observer reads files of cgroups, which stay open.
type observer struct {
	pods *counter
	hogs []hogFiles
	// processes are the pidfds of the processes of the hogs.
	processes []int
	samples   []sample
	// ended is when the last process had ended, zero before.
	ended time.Time
}

type hogFiles struct{ usage, limit *counter }

// counter is an open file with a number.
type counter struct {
	file *os.File
	buf  [64]byte
}

func openCounter(dir, name string) (*counter, error) {
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	return &counter{file: file}, nil
}

// read returns zero when the cgroup is gone. No limit is the greatest number.
func (c *counter) read() int64 {
	n, err := unix.Pread(int(c.file.Fd()), c.buf[:], 0)
	if err != nil {
		return 0
	}
	value, err := kit.ParseCgroupNumber(c.buf[:n])
	if err != nil {
		return 0
	}
	return value
}

// newObserver opens the files of all pods and of hogs, whose processes have these PIDs.
func newObserver(m kit.CgroupMemory, hogs []string, pids []int) (o *observer, err error) {
	o = &observer{samples: make([]sample, 0, 1<<16)}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	if o.pods, err = openCounter(m.Pods, m.Usage); err != nil {
		return nil, err
	}
	for _, dir := range hogs {
		usage, err := openCounter(dir, m.Usage)
		if err != nil {
			return nil, err
		}
		limit, err := openCounter(dir, m.Limit)
		o.hogs = append(o.hogs, hogFiles{usage: usage, limit: limit})
		if err != nil {
			return nil, err
		}
	}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return nil, fmt.Errorf("open process %d: %w", pid, err)
		}
		o.processes = append(o.processes, fd)
	}
	return o, nil
}

func (o *observer) close() {
	counters := []*counter{o.pods}
	for _, h := range o.hogs {
		counters = append(counters, h.usage, h.limit)
	}
	for _, c := range counters {
		if c != nil {
			_ = c.file.Close() // It was only read.
		}
	}
	for _, fd := range o.processes {
		_ = unix.Close(fd)
	}
}

// run observes until ctx ends.
func (o *observer) run(ctx context.Context) {
	// The priority is that of the thread, which ends with the goroutine.
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), priority)
	for ctx.Err() == nil {
		begin := time.Now()
		o.samples = append(o.samples, o.sample(begin))
		if o.ended.IsZero() && o.allEnded() {
			o.ended = begin
		}
		pause := unix.NsecToTimespec(max(0, period-time.Since(begin)).Nanoseconds())
		_ = unix.Nanosleep(&pause, nil)
	}
}

func (o *observer) sample(at time.Time) sample {
	s := sample{at: at, pods: o.pods.read()}
	for i, h := range o.hogs {
		limit := h.limit.read()
		s.hogs += h.usage.read()
		if i == 0 || limit < s.limit {
			s.limit = limit
		}
	}
	return s
}

// allEnded reports whether all processes have ended.
func (o *observer) allEnded() bool {
	for _, fd := range o.processes {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 0); err != nil || n == 0 {
			return false
		}
	}
	return true
}
