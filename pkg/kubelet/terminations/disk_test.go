package terminations

import (
	"errors"
	"os"
	"sync"
	"syscall"

	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
)

var errDead = errors.New("the agent is dead")

// disk is a real file system on which the agent dies at a given operation, or which is full.
type disk struct {
	utilfs.DefaultFs
	mu sync.Mutex
	// dieAt is the number of the operation that is the last, from 1; it has its effect if late is true.
	dieAt int
	late  bool
	done  int
	// failure is what everything that writes fails with.
	failure error
}

// do does an operation, unless the agent is dead.
func (d *disk) do(operation func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done++
	switch {
	case d.dieAt != 0 && (d.done > d.dieAt || d.done == d.dieAt && !d.late):
		return errDead
	case d.failure != nil:
		return d.failure
	}
	err := operation()
	if d.dieAt != 0 && d.done == d.dieAt {
		return errDead
	}
	return err
}

func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failure = err
}

func (d *disk) MkdirAll(path string, mode os.FileMode) error {
	return d.do(func() error { return d.DefaultFs.MkdirAll(path, mode) })
}

func (d *disk) Rename(from, to string) error {
	return d.do(func() error { return d.DefaultFs.Rename(from, to) })
}

func (d *disk) Remove(name string) error {
	return d.do(func() error { return d.DefaultFs.Remove(name) })
}

func (d *disk) TempFile(dir, prefix string) (file utilfs.File, err error) {
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
	disk *disk
}

// Write writes half of it if it does not come to its end.
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
