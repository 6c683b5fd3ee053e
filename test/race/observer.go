package race

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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

// read returns zero when the cgroup is gone.
func (c *counter) read() int64 {
	n, err := unix.Pread(int(c.file.Fd()), c.buf[:], 0)
	if err != nil {
		return 0
	}
	value, err := strconv.ParseInt(strings.TrimSpace(string(c.buf[:n])), 10, 64)
	if err != nil {
		return 0
	}
	return value
}

// newObserver opens the files of all pods and of hogs, whose processes have these PIDs.
func newObserver(m memory, hogs []string, pids []int) (o *observer, err error) {
	o = &observer{samples: make([]sample, 0, 1<<16)}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	if o.pods, err = openCounter(m.pods, m.usage); err != nil {
		return nil, err
	}
	for _, dir := range hogs {
		usage, err := openCounter(dir, m.usage)
		if err != nil {
			return nil, err
		}
		limit, err := openCounter(dir, m.limit)
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

// memory names the files of cgroups.
type memory struct {
	version string
	// pods is the directory of the cgroup of all pods.
	pods, usage, limit string
	// inactive is the key of the inactive page cache in memory.stat, of a cgroup and all below.
	inactive string
}

// findMemory returns the files of this machine; podsCgroup is the path of the cgroup of all pods.
func findMemory(podsCgroup string) (memory, error) {
	for _, m := range []memory{
		{"v1", "/sys/fs/cgroup/memory", "memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file"},
		{"v2", "/sys/fs/cgroup", "memory.current", "memory.max", "inactive_file"},
	} {
		m.pods = filepath.Join(m.pods, podsCgroup)
		if _, err := os.Stat(filepath.Join(m.pods, m.usage)); err == nil {
			return m, nil
		}
	}
	return memory{}, fmt.Errorf("no cgroup %s with a memory controller", podsCgroup)
}

// available returns what all pods may still use, as the signal allocatableMemory.available counts it.
func (m memory) available() (int64, error) {
	usage, err := readNumber(filepath.Join(m.pods, m.usage))
	if err != nil {
		return 0, err
	}
	limit, err := readNumber(filepath.Join(m.pods, m.limit))
	if err != nil {
		return 0, err
	}
	stat, err := os.ReadFile(filepath.Join(m.pods, "memory.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(stat)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == m.inactive {
			inactive, err := strconv.ParseInt(value, 10, 64)
			return limit - usage + inactive, err
		}
	}
	return 0, errors.New("memory.stat has no " + m.inactive)
}

func readNumber(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}
