package terminations

import (
	"errors"
	"os"
	"sync"
	"syscall"

	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
)

var errCrashed = errors.New("the process has crashed")

// faultyDisk is a real file system on which the process crashes at a given operation, or every write fails.
type faultyDisk struct {
	utilfs.DefaultFs
	mu sync.Mutex
	// crashAt is the number of the last operation, counted from 1; that operation has an effect if late is true.
	crashAt int
	late    bool
	done    int
	// failure is the error of every write, nil for none.
	failure error
}

// do executes an operation, unless the process has crashed.
func (d *faultyDisk) do(operation func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done++
	switch {
	case d.crashAt != 0 && (d.done > d.crashAt || d.done == d.crashAt && !d.late):
		return errCrashed
	case d.failure != nil:
		return d.failure
	}
	err := operation()
	if d.crashAt != 0 && d.done == d.crashAt {
		return errCrashed
	}
	return err
}

func (d *faultyDisk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failure = err
}

func (d *faultyDisk) MkdirAll(path string, mode os.FileMode) error {
	return d.do(func() error { return d.DefaultFs.MkdirAll(path, mode) })
}

func (d *faultyDisk) Rename(from, to string) error {
	return d.do(func() error { return d.DefaultFs.Rename(from, to) })
}

func (d *faultyDisk) Remove(name string) error {
	return d.do(func() error { return d.DefaultFs.Remove(name) })
}

func (d *faultyDisk) TempFile(dir, prefix string) (file utilfs.File, err error) {
	err = d.do(func() error {
		file, err = d.DefaultFs.TempFile(dir, prefix)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &diskFile{File: file, disk: d}, nil
}

type diskFile struct {
	utilfs.File
	disk *faultyDisk
}

// Write writes the first half of b if the operation fails.
func (f *diskFile) Write(b []byte) (int, error) {
	err := f.disk.do(func() error {
		_, err := f.File.Write(b)
		return err
	})
	if err != nil {
		_, _ = f.File.Write(b[:len(b)/2])
	}
	return len(b), err
}

func (f *diskFile) Sync() error { return f.disk.do(f.File.Sync) }

func (f *diskFile) Close() error {
	return errors.Join(f.disk.do(func() error { return nil }), f.File.Close())
}

var errFull = &os.PathError{Op: "write", Path: "file", Err: syscall.ENOSPC}
