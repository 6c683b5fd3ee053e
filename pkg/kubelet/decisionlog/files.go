package decisionlog

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Directory are the files of a directory, which is created with the first of them. Only its owner can read them.
type Directory string

// Create implements Files.
func (d Directory) Create(name string) (io.WriteCloser, error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(string(d), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// List implements Files.
func (d Directory) List() ([]File, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []File
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // removed meanwhile, or not ours
		}
		files = append(files, File{Name: e.Name(), Bytes: info.Size()})
	}
	return files, nil
}

// Remove implements Files.
func (d Directory) Remove(name string) error { return os.Remove(filepath.Join(string(d), name)) }
