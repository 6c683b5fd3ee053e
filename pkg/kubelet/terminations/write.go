package terminations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	utilstore "k8s.io/kubernetes/pkg/kubelet/util/store"
)

const (
	// Failed writes are retried after firstRetry; the interval doubles up to lastRetry.
	firstRetry, lastRetry = time.Second, time.Minute
)

// Run writes changes to disk until ctx ends, and those that are left once more after that. It must be called once.
func (s *Store) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	// pause is the time until the next retry, 0 if the last write succeeded.
	for pause := time.Duration(0); ; {
		ended := s.awaitChange(ctx, pause)
		err := s.flush(logger)
		switch {
		case err == nil && pause > 0:
			logger.Info("Writing terminations to disk succeeded again", "directory", s.dir.path)
			pause = 0
		case err != nil && pause == 0:
			logger.Error(err, "Failed to write terminations to disk, they will not be resumed after a restart; retrying",
				"directory", s.dir.path)
			pause = firstRetry
		case err != nil:
			pause = min(2*pause, lastRetry)
		}
		if ended {
			return
		}
	}
}

// awaitChange returns when there are changes to write, or after pause unless it is 0. It returns true when ctx has
// ended.
func (s *Store) awaitChange(ctx context.Context, pause time.Duration) (ended bool) {
	var over <-chan time.Time
	if pause > 0 {
		timer := s.clock.NewTimer(pause)
		defer timer.Stop()
		over = timer.C()
	}
	select {
	case <-ctx.Done():
		return true
	case <-s.wake:
	case <-over:
	}
	return false
}

// flush writes all changes to disk. After an error it goes on with the other changes.
func (s *Store) flush(logger klog.Logger) error {
	var failed []error
	for _, c := range s.pending() {
		err := s.persist(c)
		if errors.As(err, new(permanentError)) {
			logger.Error(err, "Termination cannot be written to disk", "podUID", c.uid)
			err = nil
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		s.persisted(c)
	}
	if len(failed) > 1 {
		return fmt.Errorf("%w (and %d others)", failed[0], len(failed)-1)
	}
	return errors.Join(failed...)
}

// change is a record that differs on disk; record is nil if the file has to be deleted.
type change struct {
	uid    types.UID
	number uint64
	record *Record
}

// pending returns the changes that are not on disk, sorted by UID.
func (s *Store) pending() []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := make([]change, 0, len(s.changed))
	for _, uid := range slices.Sorted(maps.Keys(s.changed)) {
		c := change{uid: uid, number: s.changed[uid]}
		if r, ok := s.records[uid]; ok {
			c.record = &r
		}
		changes = append(changes, c)
	}
	return changes
}

// permanentError is an error that a retry cannot resolve.
type permanentError struct{ error }

func (s *Store) persist(c change) error {
	if err := utilstore.ValidateKey(fileName(c.uid)); err != nil {
		return permanentError{err}
	}
	if c.record == nil {
		if err := s.dir.remove(c.uid); err != nil {
			return fmt.Errorf("removing the record of pod %s: %w", c.uid, err)
		}
		return nil
	}
	data, err := encode(*c.record)
	if err != nil {
		return permanentError{err}
	}
	if err := s.dir.write(c.uid, data); err != nil {
		return fmt.Errorf("writing the record of pod %s: %w", c.uid, err)
	}
	return nil
}

// persisted marks a change as written, unless the record has changed again since.
func (s *Store) persisted(c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed[c.uid] == c.number {
		delete(s.changed, c.uid)
	}
}
