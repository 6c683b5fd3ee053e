package notify

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// nodeStalls has the pressure stall information of the node. stallsFile is that of a cgroup v2, limitEventsFile counts
	// how often the cgroup has reached its own limits (Linux 5.2). memory.events counts that for all cgroups below as
	// well, of which a container that fills its page cache reaches its limit all the time.
	nodeStalls      = "/proc/pressure/memory"
	stallsFile      = "memory.pressure"
	limitEventsFile = "memory.events.local"
	// eventPause is the shortest time between two events of a source. The kernel limits them too: those of a trigger to
	// one in its window, those of a file of a cgroup to one in 10 ms.
	eventPause = 100 * time.Millisecond
	// existsPeriod is the time between two checks of whether the cgroup exists. The kernel reports the removal of a cgroup
	// to those who wait for a trigger, but not to those who wait for its events.
	existsPeriod = 2 * time.Second
)

// ErrNoCgroup is returned for a cgroup that does not exist.
var ErrNoCgroup = errors.New("the cgroup does not exist")

// trigger is a trigger of pressure stall information: it reports that some tasks were stalled on memory for a total of
// stall within a window. See accounting/psi.rst of the kernel documentation.
type trigger struct{ stall, window time.Duration }

// triggers are those that are tried, in this order: the shortest window that the kernel accepts, and the shortest one
// that it accepts from a process without CAP_SYS_RESOURCE. A fiftieth of each is what a node without pressure does not
// reach.
var triggers = []trigger{
	{stall: 10 * time.Millisecond, window: 500 * time.Millisecond},
	{stall: 40 * time.Millisecond, window: 2 * time.Second},
}

// String is what is written to the file, which the kernel requires to end with a byte that it ignores.
func (t trigger) String() string {
	return fmt.Sprintf("some %d %d\x00", t.stall.Microseconds(), t.window.Microseconds())
}

// request requests the first trigger that the kernel accepts. EINVAL is how it refuses a window; after any other error
// no other window is tried.
func request(write func(string) error) error {
	var errs []error
	for _, t := range triggers {
		err := write(t.String())
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("a window of %s: %w", t.window, err))
		if !errors.Is(err, unix.EINVAL) {
			break
		}
	}
	return errors.Join(errs...)
}

// Pressure is a source of notifications on cgroup v2: of the node, or of one cgroup. It calls the function that it was
// made with, from a goroutine of its own, at most once in 100 ms; that function must not block. Close is not called
// concurrently with itself.
type Pressure struct {
	event func()
	files []pressureFile
	// wake is an eventfd that ends the goroutine.
	wake int
	gone atomic.Bool
	done sync.WaitGroup
}

// pressureFile is an open file that the kernel reports changes of. trigger is true for one with a trigger, false for
// one whose values change.
type pressureFile struct {
	fd      int
	trigger bool
}

// NewNodePressure returns a source for the node: tasks are stalled on memory.
func NewNodePressure(event func()) (*Pressure, error) {
	return newPressure(event, nodeStalls, "")
}

// NewCgroupPressure returns a source for a directory of a cgroup v2: tasks in it are stalled on memory, or the cgroup
// has reached its own limit. What the kernel refuses is left out, and is an error that wraps ErrUnsupported, beside the
// source; if it refuses both, the source is nil. If the cgroup does not exist, the error is ErrNoCgroup.
func NewCgroupPressure(dir string, event func()) (*Pressure, error) {
	p, err := newPressure(event, filepath.Join(dir, stallsFile), filepath.Join(dir, limitEventsFile))
	if err == nil {
		return p, nil
	}
	if _, gone := os.Stat(dir); errors.Is(gone, fs.ErrNotExist) {
		if p != nil {
			_ = p.Close()
		}
		return nil, fmt.Errorf("%w: %w", ErrNoCgroup, gone)
	}
	return p, err
}

// newPressure opens the two files; events is empty for the node.
func newPressure(event func(), stalls, events string) (*Pressure, error) {
	p := &Pressure{event: event}
	refused := p.openTrigger(stalls)
	if events != "" {
		refused = errors.Join(refused, p.openEvents(events))
	}
	if refused != nil {
		refused = fmt.Errorf("%w: %w", ErrUnsupported, refused)
	}
	if len(p.files) == 0 {
		return nil, refused
	}
	var err error
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		p.closeFiles()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	p.done.Go(p.deliver)
	return p, refused
}

// openTrigger opens a file of pressure stall information and requests a trigger, which lasts until the file is closed.
func (p *Pressure) openTrigger(path string) error {
	fd, err := open(path, unix.O_RDWR)
	if err != nil {
		return err
	}
	err = request(func(text string) error {
		return retry(func() error { _, err := unix.Write(fd, []byte(text)); return err })
	})
	if err != nil {
		_ = unix.Close(fd)
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	p.files = append(p.files, pressureFile{fd: fd, trigger: true})
	return nil
}

// openEvents opens a file whose changes are reported from the first read on.
func (p *Pressure) openEvents(path string) error {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	file := pressureFile{fd: fd}
	if err := file.read(); err != nil {
		_ = unix.Close(fd)
		return &fs.PathError{Op: "read", Path: path, Err: err}
	}
	p.files = append(p.files, file)
	return nil
}

func open(path string, flags int) (fd int, err error) {
	err = retry(func() error { fd, err = unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); return err })
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// retry repeats a system call that a signal has ended.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// read reads the file, which ends the report of a change. It fails when the cgroup was removed.
func (f *pressureFile) read() error {
	var buf [4096]byte
	return retry(func() error { _, err := unix.Pread(f.fd, buf[:], 0); return err })
}

// Gone reports whether the source reports nothing more, because the cgroup was removed or the kernel cannot be asked.
// Then it should be closed.
func (p *Pressure) Gone() bool { return p.gone.Load() }

// Close releases the source. It delivers no event after it has returned. It is called once.
func (p *Pressure) Close() error {
	err := retry(func() error { _, err := unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); return err })
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	p.done.Wait()
	p.closeFiles()
	return unix.Close(p.wake)
}

func (p *Pressure) closeFiles() {
	for _, f := range p.files {
		_ = unix.Close(f.fd)
	}
}

// deliver calls event for changes of the files until the source is closed or the cgroup is removed.
func (p *Pressure) deliver() {
	defer p.gone.Store(true)
	polled := make([]unix.PollFd, 0, len(p.files)+1)
	polled = append(polled, unix.PollFd{Fd: int32(p.wake), Events: unix.POLLIN})
	for _, f := range p.files {
		polled = append(polled, unix.PollFd{Fd: int32(f.fd), Events: unix.POLLPRI})
	}
	for poll(polled, existsPeriod) {
		changed := false
		for i, f := range p.files {
			reported := polled[i+1].Revents
			if f.removed(reported) {
				return
			}
			changed = changed || reported != 0
		}
		if !changed {
			continue
		}
		p.event()
		// What changes meanwhile is reported afterwards.
		if !poll(polled[:1], eventPause) {
			return
		}
	}
}

// removed reports whether the cgroup was removed. For a trigger the kernel reports that as an error, for values each
// change as one.
func (f *pressureFile) removed(reported int16) bool {
	if f.trigger {
		return reported&(unix.POLLERR|unix.POLLNVAL) != 0
	}
	return f.read() != nil
}

// poll waits for a report, but no longer than a time. It returns false when the first file has one, since the source is
// being closed, and when the kernel cannot be asked.
func poll(polled []unix.PollFd, atMost time.Duration) bool {
	deadline := time.Now().Add(atMost)
	for {
		left := (time.Until(deadline) + time.Millisecond - 1).Milliseconds() // rounded up
		n, err := unix.Poll(polled, int(max(0, left)))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && (n == 0 || polled[0].Revents == 0)
	}
}
