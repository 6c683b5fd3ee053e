package terminations

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
	"k8s.io/utils/clock"
)

// defaultLimit is greater than the number of pods on a node.
const defaultLimit = 1024

// Config is what a Store is made of.
type Config struct {
	// Directory is the path of the records; it need not exist.
	Directory string
	// Filesystem is optional.
	Filesystem utilfs.Filesystem
	// Clock is optional.
	Clock clock.Clock
	// Limit is the maximum number of records; 0 is the default.
	Limit int
	// ShuttingDown is optional. While it returns true, the machine shuts down, and records with the cause Kill are not
	// stored: after the next boot such a pod starts again as with stock, unless the API server has its terminal phase by
	// then.
	ShuttingDown func() bool
}

// Store holds the records of terminations. All methods except Load and Run access memory only, and may be called from
// any goroutine.
type Store struct {
	clock        clock.Clock
	limit        int
	shuttingDown func() bool
	// dir is used by Load, and after that by Run only.
	dir directory
	// wake has a token while the disk may differ from records.
	wake chan struct{}

	mu      sync.Mutex
	records map[types.UID]Record
	// changed has the number of the last change of each record that differs on disk.
	changed map[types.UID]uint64
	changes uint64
}

// New returns an empty store. It does not access the disk.
func New(c Config) *Store {
	if c.Filesystem == nil {
		c.Filesystem = &utilfs.DefaultFs{}
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Limit == 0 {
		c.Limit = defaultLimit
	}
	if c.ShuttingDown == nil {
		c.ShuttingDown = func() bool { return false }
	}
	return &Store{
		clock:        c.Clock,
		limit:        c.Limit,
		shuttingDown: c.ShuttingDown,
		dir:          directory{path: c.Directory, fs: c.Filesystem},
		wake:         make(chan struct{}, 1),
		records:      map[types.UID]Record{},
		changed:      map[types.UID]uint64{},
	}
}

// Save stores a record, in place of an earlier one of the same pod. It returns false, and stores nothing, if the limit
// is reached. It returns true also for a record that it does not store because the machine shuts down.
func (s *Store) Save(r Record) bool {
	if r.Cause == Kill && s.shuttingDown() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.records[r.UID]; !known && len(s.records) >= s.limit {
		return false
	}
	s.records[r.UID] = r
	s.markChanged(r.UID)
	return true
}

// Get returns the record of a pod, which may be one of an earlier run of the agent.
func (s *Store) Get(uid types.UID) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[uid]
	return r, ok
}

// DeleteFunc deletes the records for which del returns true. del must not call the store.
func (s *Store) DeleteFunc(del func(Record) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, r := range s.records {
		if del(r) {
			delete(s.records, uid)
			s.markChanged(uid)
		}
	}
}

// markChanged records that the pod's file has to be written or deleted.
func (s *Store) markChanged(uid types.UID) {
	s.changes++
	s.changed[uid] = s.changes
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
