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
	// A disk that cannot be written to is tried again after firstRetry, doubled up to lastRetry.
	firstRetry, lastRetry = time.Second, time.Minute
)

// Run writes what changes until ctx ends, and once more then. It must be called once.
func (s *Store) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	// pause is 0 while all is well.
	for pause := time.Duration(0); ; {
		ended := s.wait(ctx, pause)
		err := s.flush(logger)
		switch {
		case err == nil && pause > 0:
			logger.Info("Terminations are kept on disk again", "directory", s.dir.path)
			pause = 0
		case err != nil && pause == 0:
			logger.Error(err, "Terminations cannot be kept on disk and would not survive a restart of the agent; trying again", "directory", s.dir.path)
			pause = firstRetry
		case err != nil:
			pause = min(2*pause, lastRetry)
		}
		if ended {
			return
		}
	}
}

// wait returns when there is something to write, when the pause is over (0 is none), or when ctx ends: true.
func (s *Store) wait(ctx context.Context, pause time.Duration) (ended bool) {
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

// flush makes the disk follow, as far as it can.
func (s *Store) flush(logger klog.Logger) error {
	var failed []error
	for _, c := range s.pending() {
		err := s.follow(c)
		if errors.As(err, new(unusable)) {
			logger.Error(err, "A termination cannot be kept on disk", "podUID", c.uid)
			err = nil
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		s.followed(c)
	}
	if len(failed) > 1 {
		return fmt.Errorf("%w (and %d others)", failed[0], len(failed)-1)
	}
	return errors.Join(failed...)
}

// change is what the disk does not know of: a record, or that there is none any more.
type change struct {
	uid    types.UID
	number uint64
	record *Record
}

// pending returns the changes, in order of their UIDs.
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

// unusable is an error that trying again does not help.
type unusable struct{ error }

func (s *Store) follow(c change) error {
	if err := utilstore.ValidateKey(fileName(c.uid)); err != nil {
		return unusable{err}
	}
	if c.record == nil {
		if err := s.dir.remove(c.uid); err != nil {
			return fmt.Errorf("removing the record of pod %s: %w", c.uid, err)
		}
		return nil
	}
	data, err := encode(*c.record)
	if err != nil {
		return unusable{err}
	}
	if err := s.dir.write(c.uid, data); err != nil {
		return fmt.Errorf("writing the record of pod %s: %w", c.uid, err)
	}
	return nil
}

// followed notes that the disk knows of a change, unless there is a later one.
func (s *Store) followed(c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed[c.uid] == c.number {
		delete(s.changed, c.uid)
	}
}
