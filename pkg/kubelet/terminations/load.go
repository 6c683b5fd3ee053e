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

// maxRejected is how many rejected files are kept for inspection.
const maxRejected = 16

// Load reads the records of earlier runs of the agent. It is called once, before all other methods. It renames files
// that are not valid records, with a line in the log that names each; no error on the disk prevents the start of the
// agent.
func (s *Store) Load(ctx context.Context) {
	logger := klog.FromContext(ctx)
	entries, err := s.dir.fs.ReadDir(s.dir.path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			logger.Error(err, "Failed to read terminations of earlier runs, they are not resumed", "directory", s.dir.path)
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
			// The process ended during a write.
			s.removeFile(logger, entry.Name())
		case strings.HasSuffix(entry.Name(), rejectedSuffix):
			if rejected++; rejected > maxRejected {
				s.removeFile(logger, entry.Name())
			}
		}
	}
	if ignored > 0 {
		logger.Error(nil, "Too many termination records, ignoring the rest",
			"directory", s.dir.path, "read", len(s.records), "ignored", ignored)
	}
	if len(s.records) > 0 {
		logger.Info("Terminations of earlier runs will be resumed when their pods are added", "count", len(s.records))
	}
}

func (s *Store) load(logger klog.Logger, entry fs.DirEntry, uid types.UID) {
	path := filepath.Join(s.dir.path, entry.Name())
	record, err := s.read(entry, uid)
	if err == nil {
		s.records[uid] = record
		return
	}
	logger.Error(err, "Rejecting invalid termination record", "file", path, "podUID", uid)
	if errors.As(err, new(transientError)) {
		return
	}
	if err := s.dir.reject(entry.Name()); err != nil {
		logger.Error(err, "Failed to rename rejected termination record", "file", path)
	}
}

// transientError is an error of the disk rather than of the file: a later read may succeed.
type transientError struct{ error }

func (s *Store) read(entry fs.DirEntry, uid types.UID) (Record, error) {
	info, err := entry.Info()
	if err != nil {
		return Record{}, transientError{err}
	}
	if !info.Mode().IsRegular() {
		return Record{}, fmt.Errorf("type: %v, must be a regular file", info.Mode().Type())
	}
	if info.Size() > maxSize {
		return Record{}, fmt.Errorf("size: %d bytes, must be at most %d", info.Size(), maxSize)
	}
	if err := utilstore.ValidateKey(entry.Name()); err != nil {
		return Record{}, err
	}
	data, err := s.dir.fs.ReadFile(filepath.Join(s.dir.path, entry.Name()))
	if err != nil {
		return Record{}, transientError{err}
	}
	record, err := decode(data)
	if err == nil && record.UID != uid {
		err = fmt.Errorf("uid: Invalid value: %q: the name of the file has %q", record.UID, uid)
	}
	return record, err
}

// removeFile deletes an obsolete file.
func (s *Store) removeFile(logger klog.Logger, name string) {
	if err := s.dir.fs.Remove(filepath.Join(s.dir.path, name)); err != nil {
		logger.Error(err, "Failed to delete obsolete file", "file", filepath.Join(s.dir.path, name))
	}
}
