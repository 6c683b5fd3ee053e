package terminations

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
	"k8s.io/utils/clock"
)

// defaultLimit is how many terminations are kept: more than there are pods on a node.
const defaultLimit = 1024

// Config is what a Store works with.
type Config struct {
	// Directory is where the files are; it need not exist.
	Directory string
	// Filesystem is optional.
	Filesystem utilfs.Filesystem
	// Clock is optional.
	Clock clock.Clock
	// Limit is how many terminations are kept at most; 0 is the default. Those that come later are not kept.
	Limit int
}

// Store holds the terminations that are kept. All methods but Load and Run return at once and may be called by any goroutine.
type Store struct {
	clock clock.Clock
	limit int
	// dir belongs to whoever runs Load, then to Run.
	dir directory
	// wake holds a token while the disk may differ from records.
	wake chan struct{}

	mu      sync.Mutex
	records map[types.UID]Record
	// changed has the number of the last change of each record that the disk does not know of.
	changed map[types.UID]uint64
	changes uint64
}

// New returns an empty store. It touches nothing.
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
	return &Store{
		clock:   c.Clock,
		limit:   c.Limit,
		dir:     directory{path: c.Directory, fs: c.Filesystem},
		wake:    make(chan struct{}, 1),
		records: map[types.UID]Record{},
		changed: map[types.UID]uint64{},
	}
}

// Keep keeps a termination, in place of what was kept of the pod. It is false when there are too many already.
func (s *Store) Keep(r Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.records[r.UID]; !known && len(s.records) >= s.limit {
		return false
	}
	s.records[r.UID] = r
	s.touch(r.UID)
	return true
}

// Get returns what is kept of a pod, by this run of the agent or an earlier one.
func (s *Store) Get(uid types.UID) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[uid]
	return r, ok
}

// Retain forgets the terminations for which keep is false. It must not call the store.
func (s *Store) Retain(keep func(Record) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, r := range s.records {
		if !keep(r) {
			delete(s.records, uid)
			s.touch(uid)
		}
	}
}

// touch notes that the disk has to follow.
func (s *Store) touch(uid types.UID) {
	s.changes++
	s.changed[uid] = s.changes
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
