package notify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	usageFile   = "memory.usage_in_bytes"
	controlFile = "cgroup.event_control"
	// tolerance is the least difference, in bytes, for which a new level replaces the one in force: the kernel compares in
	// batches of pages.
	tolerance = 1 << 20
)

// ErrUnsupported is returned for notifications that the kernel does not have or refuses: those of levels on cgroup v2,
// those of pressure with psi=0.
var ErrUnsupported = errors.New("the kernel has no such notifications")

// Memcg is a Source that registers an eventfd for the usage counter of a cgroup (cgroup v1).
type Memcg struct {
	dir   string
	event func()
	armed int64
	file  *os.File
	// done waits for the goroutines that read events.
	done *sync.WaitGroup
}

// NewMemcg returns a source for a cgroup directory, or an error that wraps ErrUnsupported. It registers nothing before
// Arm.
func NewMemcg(dir string, event func()) (*Memcg, error) {
	if _, err := os.Stat(filepath.Join(dir, controlFile)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return &Memcg{dir: dir, event: event, done: &sync.WaitGroup{}}, nil
}

// Arm implements Source.
func (m *Memcg) Arm(usage int64) error {
	if usage <= 0 {
		return fmt.Errorf("usage of %d bytes cannot be crossed", usage)
	}
	if m.file != nil && max(usage-m.armed, m.armed-usage) < tolerance {
		return nil
	}
	file, err := m.register(usage)
	if err != nil {
		return fmt.Errorf("arming %s at %d bytes: %w", m.dir, usage, err)
	}
	previous := m.file
	m.file, m.armed = file, usage
	m.done.Go(func() { m.deliver(file) })
	if previous != nil {
		return previous.Close()
	}
	return nil
}

// Close implements Source.
func (m *Memcg) Close() error {
	if m.file == nil {
		return nil
	}
	err := m.file.Close()
	m.file = nil
	m.done.Wait()
	return err
}

// register registers a new eventfd for a level. The kernel keeps the registration until the eventfd is closed.
func (m *Memcg) register(usage int64) (*os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	// A non-blocking file is read through the runtime's poller, so that closing it ends a read.
	file := os.NewFile(uintptr(fd), "eventfd")
	if err := m.request(fd, usage); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (m *Memcg) request(fd int, usage int64) error {
	counter, err := os.Open(filepath.Join(m.dir, usageFile))
	if err != nil {
		return err
	}
	defer counter.Close()
	line := fmt.Sprintf("%d %d %d", fd, counter.Fd(), usage)
	return os.WriteFile(filepath.Join(m.dir, controlFile), []byte(line), 0)
}

// deliver calls event for each notification until the eventfd is closed. An eventfd that was replaced may deliver one
// last event.
func (m *Memcg) deliver(file *os.File) {
	var count [8]byte
	for {
		if _, err := file.Read(count[:]); err != nil {
			return
		}
		m.event()
	}
}
