// Package recordfile reads and replaces files with one small record each. What was saved survives a power failure, and
// a file that is no valid record is renamed, so that it is kept for inspection and is not read again.
package recordfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	rejectedSuffix = ".rejected"
	// temporarySuffix is that of a file that is being written. One that a killed agent has left is overwritten.
	temporarySuffix = ".tmp"
)

// File is a file with a record. All fields are required. Calls for one path must not overlap.
type File[R any] struct {
	Path string
	// MaxSize is the size of the largest record, in bytes.
	MaxSize int
	Encode  func(R) ([]byte, error)
	// Decode gets at most MaxSize bytes, which may come from anywhere.
	Decode func([]byte) (R, error)
}

// RejectedError is the error about a file that is no valid record.
type RejectedError struct {
	// RenamedTo is the path that the file has now, unless Err says that it could not be renamed.
	RenamedTo string
	Err       error
}

func (e *RejectedError) Error() string { return e.Err.Error() }

func (e *RejectedError) Unwrap() error { return e.Err }

// Load returns the record, the zero value if there is no file. A file that is no valid record, or no regular file, is
// renamed, and the error is a *RejectedError. After any other error a later call may succeed.
func (f *File[R]) Load() (R, error) {
	var none R
	data, err := f.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return none, nil
	case errors.As(err, new(*RejectedError)):
	case err != nil:
		return none, err
	default:
		var r R
		if r, err = f.Decode(data); err == nil {
			return r, nil
		}
	}
	rejected := f.Path + rejectedSuffix
	return none, &RejectedError{RenamedTo: rejected, Err: errors.Join(err, os.Rename(f.Path, rejected))}
}

func (f *File[R]) read() ([]byte, error) {
	info, err := os.Stat(f.Path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &RejectedError{Err: fmt.Errorf("%s: it is no regular file, but %v", f.Path, info.Mode().Type())}
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, int64(f.MaxSize)+1))
	if err == nil && len(data) > f.MaxSize {
		err = &RejectedError{Err: fmt.Errorf("size: more than %d bytes", f.MaxSize)}
	}
	return data, err
}

// Save replaces the record, and creates its directory. If it returns nil, the record survives a power failure.
func (f *File[R]) Save(r R) error {
	data, err := f.Encode(r)
	if err != nil {
		return err
	}
	if len(data) > f.MaxSize {
		return fmt.Errorf("size: %d bytes, must be at most %d", len(data), f.MaxSize)
	}
	return Replace(f.Path, data, 0o600)
}

// Replace replaces a file atomically, and creates its directory. If it returns nil, the file survives a power failure.
func Replace(path string, data []byte, mode fs.FileMode) error {
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return err
	}
	temporary := path + temporarySuffix
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return SyncDirectory(directory)
}

// SyncDirectory writes a directory to the disk: what was created, renamed or removed in it survives a power failure.
func SyncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
