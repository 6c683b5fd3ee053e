package terminations

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	utilstore "k8s.io/kubernetes/pkg/kubelet/util/store"
)

// maxRejected is how many files that could not be read are left for somebody to look at.
const maxRejected = 16

// Load reads what earlier runs of the agent have begun. It is called once, before anything else. A file that is no record is set aside
// with a line in the log that names it; whatever is wrong with the disk, the agent starts.
func (s *Store) Load(ctx context.Context) {
	logger := klog.FromContext(ctx)
	entries, err := s.dir.fs.ReadDir(s.dir.path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			logger.Error(err, "Terminations that an earlier run of the agent has begun cannot be read, they do not go on", "directory", s.dir.path)
		}
		return
	}
	rejected, ignored := 0, 0
	for _, entry := range entries {
		uid, isRecord := uidOf(entry.Name())
		switch {
		case isRecord && len(s.records) >= s.limit:
			ignored++
		case isRecord:
			s.load(logger, entry, uid)
		case strings.HasPrefix(entry.Name(), temporaryPrefix):
			// The agent died while it wrote.
			s.tidy(logger, entry.Name())
		case strings.HasSuffix(entry.Name(), rejectedSuffix):
			if rejected++; rejected > maxRejected {
				s.tidy(logger, entry.Name())
			}
		}
	}
	if ignored > 0 {
		logger.Error(nil, "Too many records of terminations, the rest is not read", "directory", s.dir.path, "read", len(s.records), "ignored", ignored)
	}
	if len(s.records) > 0 {
		logger.Info("Terminations were begun by an earlier run of the agent, they go on when their pods are seen", "count", len(s.records))
	}
}

func (s *Store) load(logger klog.Logger, entry fs.DirEntry, uid types.UID) {
	path := filepath.Join(s.dir.path, entry.Name())
	record, err := s.read(entry, uid)
	if err == nil {
		s.records[uid] = record
		return
	}
	logger.Error(err, "The record of a termination cannot be used and is set aside", "file", path, "podUID", uid)
	if errors.As(err, new(unreadable)) {
		return
	}
	if err := s.dir.reject(entry.Name()); err != nil {
		logger.Error(err, "The record of a termination cannot be set aside", "file", path)
	}
}

// unreadable is an error that says nothing about the file itself: it may be readable another time.
type unreadable struct{ error }

func (s *Store) read(entry fs.DirEntry, uid types.UID) (Record, error) {
	info, err := entry.Info()
	if err != nil {
		return Record{}, unreadable{err}
	}
	if !info.Mode().IsRegular() {
		return Record{}, fmt.Errorf("type: %v, allowed is a regular file", info.Mode().Type())
	}
	if info.Size() > maxSize {
		return Record{}, fmt.Errorf("size: %d bytes, allowed are %d", info.Size(), maxSize)
	}
	if err := utilstore.ValidateKey(entry.Name()); err != nil {
		return Record{}, err
	}
	data, err := s.dir.fs.ReadFile(filepath.Join(s.dir.path, entry.Name()))
	if err != nil {
		return Record{}, unreadable{err}
	}
	record, err := decode(data)
	if err == nil && record.UID != uid {
		err = fmt.Errorf("uid: Invalid value: %q: the name of the file says %q", record.UID, uid)
	}
	return record, err
}

// tidy removes a file that nobody needs.
func (s *Store) tidy(logger klog.Logger, name string) {
	if err := s.dir.fs.Remove(filepath.Join(s.dir.path, name)); err != nil {
		logger.Error(err, "A file that nobody needs cannot be removed", "file", filepath.Join(s.dir.path, name))
	}
}
