package fence

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// file is an open file of a cgroup with one number, or with a few keys and numbers. It is used by one goroutine at a
// time.
type file struct {
	name string
	fd   int
	// unset is what is written to remove the limit.
	unset string
	buf   [256]byte
}

// openFile opens a file for reading and writing, or for reading only. With O_NONBLOCK, a write to memory.max (v2) sets
// the limit and leaves reclaim to the processes of the cgroup (Linux 6.16); earlier kernels, and other files, ignore
// it.
func openFile(dir, name, unset string, flags int) (*file, error) {
	path := filepath.Join(dir, name)
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return &file{name: name, fd: fd, unset: unset}, nil
	}
}

func (f *file) close() {
	if f != nil {
		_ = unix.Close(f.fd)
	}
}

// read returns the number in the file; "max", and the greatest limit of v1, are unlimited.
func (f *file) read() (int64, error) {
	data, err := f.content()
	if err != nil {
		return 0, err
	}
	return parse(f.name, data)
}

// value returns the value of a key in a flat keyed file.
func (f *file) value(key string) (int64, error) {
	data, err := f.content()
	if err != nil {
		return 0, err
	}
	return valueOf(f.name, data, key)
}

func (f *file) content() ([]byte, error) {
	for {
		n, err := unix.Pread(f.fd, f.buf[:], 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", f.name, err)
		}
		return f.buf[:n], nil
	}
}

func parse(name string, data []byte) (int64, error) {
	text := string(bytes.TrimSpace(data))
	if text == "max" {
		return unlimited, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if n >= unlimited/pageSize*pageSize {
		return unlimited, nil
	}
	return n, nil
}

// write writes the number with one system call, which is not repeated when a signal ends it (EINTR).
func (f *file) write(value int64) error {
	text := append(f.buf[:0], f.unset...)
	if value != unlimited {
		text = strconv.AppendInt(f.buf[:0], value, 10)
	}
	if _, err := unix.Pwrite(f.fd, text, 0); err != nil {
		return fmt.Errorf("writing %d to %s: %w", value, f.name, err)
	}
	return nil
}

// isGone is true for the errors of a cgroup that was removed.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
