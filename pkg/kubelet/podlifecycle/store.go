package podlifecycle

import (
	"sync"
	"time"
)

// Store is a Table for concurrent use. It has no dependencies, so that New can build it before all parts that query it.
// Only the pod workers write to it.
type Store struct {
	mu    sync.RWMutex
	table *Table
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{table: NewTable()} }

// Apply is Table.Apply. For the pod workers only.
func (s *Store) Apply(uid UID, ev Event, now time.Time) (State, []Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Apply(uid, ev, now)
}

// MarkSynced is Table.MarkSynced. For the pod workers only.
func (s *Store) MarkSynced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.MarkSynced()
}

// State returns a pod's state; false if there is none.
func (s *Store) State(uid UID) (State, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.State(uid)
}

// UIDs returns the UIDs of all pods that have a state, in ascending order.
func (s *Store) UIDs() []UID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.UIDs()
}

func (s *Store) evaluate(q Query, uid UID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.Evaluate(q, uid)
}

// CouldHaveRunningContainers is false once the pod's containers have stopped for good.
func (s *Store) CouldHaveRunningContainers(uid UID) bool {
	return s.evaluate(CouldHaveRunningContainers, uid)
}

// ShouldPodBeFinished is true once the pod has been stopped and its resources released.
func (s *Store) ShouldPodBeFinished(uid UID) bool { return s.evaluate(ShouldPodBeFinished, uid) }

// IsPodTerminationRequested is true from the first request to stop the pod until its state is removed. Not for clean-up
// loops.
func (s *Store) IsPodTerminationRequested(uid UID) bool { return s.evaluate(TerminationRequested, uid) }

// ShouldPodContainersBeTerminating is true once no container of the pod will be started any more.
func (s *Store) ShouldPodContainersBeTerminating(uid UID) bool {
	return s.evaluate(ContainersBeTerminating, uid)
}

// ShouldPodRuntimeBeRemoved is true once resources of running containers may be removed.
func (s *Store) ShouldPodRuntimeBeRemoved(uid UID) bool { return s.evaluate(RuntimeBeRemoved, uid) }

// ShouldPodContentBeRemoved is true once everything of the pod may be deleted: it was evicted or deleted, and has
// stopped.
func (s *Store) ShouldPodContentBeRemoved(uid UID) bool { return s.evaluate(ContentBeRemoved, uid) }

// IsPodKnownTerminated is true for a pod that has a state and whose containers have stopped. For admission.
func (s *Store) IsPodKnownTerminated(uid UID) bool { return s.evaluate(KnownTerminated, uid) }

// IsPodForMirrorPodTerminatingByFullName is true while the static pod that holds the name is being stopped. Until then
// its mirror pod must not be deleted.
func (s *Store) IsPodForMirrorPodTerminatingByFullName(fullName string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.mirrorTerminating(fullName)
}
