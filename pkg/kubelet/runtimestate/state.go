package runtimestate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// ErrNetworkUnknown is the network error before the first answer of the runtime.
var ErrNetworkUnknown = errors.New("network state unknown")

var (
	errNeverSynced = errors.New("container runtime status check may not have completed yet")
	errDown        = errors.New("container runtime is down")
)

// HealthCheck returns whether a part of the agent is healthy, and the reason if it is not. It must not block or call
// the runtime.
type HealthCheck func() (bool, error)

type namedCheck struct {
	name  string
	check HealthCheck
}

// State is the last known state of the runtime. It is safe for concurrent use.
type State struct {
	// maxSyncAge is how long after its last answer as ready the runtime counts as down.
	maxSyncAge time.Duration

	mu       sync.RWMutex
	lastSync time.Time
	// wasDown is when the runtime was last found to be ready again; zero if it always was.
	wasDown  time.Time
	errs     conditionErrors
	checks   []namedCheck
	podCIDR  string
	handlers []kubecontainer.RuntimeHandler
	features *kubecontainer.RuntimeFeatures
}

type conditionErrors struct {
	runtime, network, storage error
}

// New returns an empty state. The runtime counts as down when its last answer as ready is older than maxSyncAge.
func New(maxSyncAge time.Duration) *State {
	return &State{maxSyncAge: maxSyncAge, errs: conditionErrors{network: ErrNetworkUnknown}}
}

// AddHealthCheck adds a check to RuntimeErrors. Its errors begin with name.
func (s *State) AddHealthCheck(name string, check HealthCheck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks = append(s.checks, namedCheck{name, check})
}

// SetRuntimeSync records that the runtime answered as ready at t.
func (s *State) SetRuntimeSync(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteDown()
	s.lastSync = t
}

// SetRuntimeError records why the runtime is not ready; nil if it is ready.
func (s *State) SetRuntimeError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteDown()
	s.errs.runtime = err
}

// SetNetworkError records why the runtime's network is not ready; nil if it is ready.
func (s *State) SetNetworkError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs.network = err
}

// SetStorageError records why volumes cannot be used; nil if they can. Volume plugins set it during their start.
func (s *State) SetStorageError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs.storage = err
}

// SetPodCIDR records the pod CIDR of the node; several are joined by commas.
func (s *State) SetPodCIDR(cidr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.podCIDR = cidr
}

// PodCIDR returns the pod CIDR of the node, empty if there is none.
func (s *State) PodCIDR() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.podCIDR
}

// SetRuntimeHandlers records the handlers of the runtime. They are sorted by name, so that the node status does not
// change if only their order changes.
func (s *State) SetRuntimeHandlers(handlers []kubecontainer.RuntimeHandler) {
	sorted := slices.Clone(handlers)
	slices.SortStableFunc(sorted, func(a, b kubecontainer.RuntimeHandler) int { return strings.Compare(a.Name, b.Name) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = sorted
}

// RuntimeHandlers returns the handlers of the runtime, sorted by name; nil before its first answer as ready. The slice
// must not be modified.
func (s *State) RuntimeHandlers() []kubecontainer.RuntimeHandler {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.handlers
}

// SetRuntimeFeatures records the features of the runtime.
func (s *State) SetRuntimeFeatures(features *kubecontainer.RuntimeFeatures) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.features = features
}

// RuntimeFeatures returns the features of the runtime; nil before its first answer as ready. They must not be modified.
func (s *State) RuntimeFeatures() *kubecontainer.RuntimeFeatures {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.features
}

// RuntimeErrors returns nil if the runtime answered as ready within the last maxSyncAge, no error is set by
// SetRuntimeError, and all health checks pass. The checks are called without a lock.
func (s *State) RuntimeErrors() error {
	s.mu.RLock()
	lastSync, runtimeErr, checks := s.lastSync, s.errs.runtime, s.checks
	s.mu.RUnlock()

	var errs []error
	switch {
	case lastSync.IsZero():
		errs = append(errs, errNeverSynced)
	case time.Since(lastSync) >= s.maxSyncAge:
		errs = append(errs, errDown)
	}
	for _, c := range checks {
		if ok, err := c.check(); !ok {
			errs = append(errs, fmt.Errorf("%s is not healthy: %w", c.name, orUnknown(err)))
		}
	}
	if runtimeErr != nil {
		errs = append(errs, runtimeErr)
	}
	return asError(errs)
}

// LastDown returns when the runtime last did not answer as ready: now while it does not, zero if it always has. Health
// checks of the agent that fail are not considered.
func (s *State) LastDown() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.down() {
		return time.Now()
	}
	return s.wasDown
}

func (s *State) down() bool {
	return s.lastSync.IsZero() || time.Since(s.lastSync) >= s.maxSyncAge || s.errs.runtime != nil
}

// noteDown is called before an answer of the runtime is recorded.
func (s *State) noteDown() {
	if s.down() {
		s.wasDown = time.Now()
	}
}

// NetworkErrors returns nil if the runtime's network is ready.
func (s *State) NetworkErrors() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return asError([]error{s.errs.network})
}

// StorageErrors returns nil if volumes can be used.
func (s *State) StorageErrors() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return asError([]error{s.errs.storage})
}

// asError returns the aggregate of the errors that are not nil, which has stock's text. It returns nil if there are
// none: a nil aggregate converted to error would not be nil.
func asError(errs []error) error {
	if aggregate := utilerrors.NewAggregate(errs); aggregate != nil {
		return aggregate
	}
	return nil
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("unknown cause")
	}
	return err
}
