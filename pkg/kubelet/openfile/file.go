// Package openfile reads files of the kernel that stay open between readings: opening one takes longer than reading it.
package openfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/shortcall"
)

// Most is the most that is read of a file, in bytes: /proc/zoneinfo of a machine with 16 NUMA nodes and 1,024 CPUs is
// smaller.
const Most = 16 << 20

// ErrTooLong is the error for a file that is longer than Most.
var ErrTooLong = fmt.Errorf("longer than %d MiB", Most>>20)

// least is the size of a new buffer, in bytes: most files of the kernel fit in it.
const least = 4 << 10

// File is a file that stays open once it has been read. It is not safe for concurrent use.
type File struct {
	path string
	file *os.File
	// fd is its descriptor, ofKernel is true if it is one of procfs or of cgroups.
	fd       int
	ofKernel bool
}

// New returns the file at a path, which need not exist. It opens nothing.
func New(path string) File { return File{path: path} }

// Path returns the path of the file.
func (f *File) Path() string { return f.path }

// Read returns the content from its beginning. It is in the buffer, which is replaced by a larger one as needed, and
// valid until that is used again; with a buffer that is large enough, reading an open file allocates nothing. A file of
// a cgroup that was removed cannot be read any more (ENODEV), also if there is another one at its path: it is opened
// again then. Errors name the path.
func (f *File) Read(buffer *[]byte) ([]byte, error) {
	if f.file != nil {
		if data, err := readAll(f.file, buffer); err == nil {
			return data, nil
		}
		f.Close()
	}
	opened, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	data, err := readAll(opened, buffer)
	if err != nil {
		_ = opened.Close() // The error of reading says more.
		return nil, err
	}
	f.file, f.fd = opened, int(opened.Fd())
	f.ofKernel = OfKernel(f.fd)
	return data, nil
}

// ReadRecord is Read for a file that the kernel makes up without a disk and returns with one call, such as counters and
// statistics of cgroups and /proc/meminfo. If the kernel has made it, and not another process in its place (lxcfs), it
// is one of these calls.
func (f *File) ReadRecord(buffer *[]byte, calls *shortcall.Calls) ([]byte, error) {
	if f.file == nil || !f.ofKernel || len(*buffer) == 0 {
		return f.Read(buffer)
	}
	if n, err := calls.Read(f.fd, *buffer); err == nil && n < len(*buffer) {
		return (*buffer)[:n], nil
	}
	return f.Read(buffer)
}

// Close closes the file until it is read again.
func (f *File) Close() {
	if f.file != nil {
		_ = f.file.Close() // It was only read.
		f.file = nil
	}
}

func readAll(opened *os.File, buffer *[]byte) ([]byte, error) {
	if len(*buffer) == 0 {
		*buffer = make([]byte, least)
	}
	for {
		n, err := opened.ReadAt(*buffer, 0)
		switch {
		case errors.Is(err, io.EOF):
			return (*buffer)[:n], nil
		case err != nil:
			return nil, err
		case len(*buffer) >= Most:
			return nil, fmt.Errorf("read %s: %w", opened.Name(), ErrTooLong)
		}
		*buffer = make([]byte, 2*len(*buffer))
	}
}

// OfKernel reports whether an open file or directory is one of procfs or of cgroups, whose content no other process
// provides.
func OfKernel(fd int) bool {
	var s unix.Statfs_t
	if err := unix.Fstatfs(fd, &s); err != nil {
		return false
	}
	switch s.Type {
	case unix.PROC_SUPER_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC:
		return true
	}
	return false
}
