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

// ErrNetworkUnknown is the network error before the runtime has been asked.
var ErrNetworkUnknown = errors.New("network state unknown")

var (
	errNeverSynced = errors.New("container runtime status check may not have completed yet")
	errDown        = errors.New("container runtime is down")
)

// HealthCheck reports whether a part of the agent is well, and if not why. It must be quick and must not call the
// runtime.
type HealthCheck func() (bool, error)

type namedCheck struct {
	name  string
	check HealthCheck
}

// State is safe for concurrent use.
type State struct {
	// maxSilence is how long the runtime may go without a good answer before it counts as down.
	maxSilence time.Duration

	mu       sync.RWMutex
	lastSync time.Time
	errs     conditionErrors
	checks   []namedCheck
	podCIDR  string
	handlers []kubecontainer.RuntimeHandler
	features *kubecontainer.RuntimeFeatures
}

type conditionErrors struct {
	runtime, network, storage error
}

// New returns a state in which nothing is known yet. maxSilence is how long the runtime may go without a good answer.
func New(maxSilence time.Duration) *State {
	return &State{maxSilence: maxSilence, errs: conditionErrors{network: ErrNetworkUnknown}}
}

// AddHealthCheck makes RuntimeErrors ask check as well.
func (s *State) AddHealthCheck(name string, check HealthCheck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks = append(s.checks, namedCheck{name, check})
}

// SetRuntimeSync records that the runtime was found ready at t.
func (s *State) SetRuntimeSync(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSync = t
}

// SetRuntimeError records why the runtime is not ready; nil when it is.
func (s *State) SetRuntimeError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs.runtime = err
}

// SetNetworkError records why the runtime's network is not ready; nil when it is.
func (s *State) SetNetworkError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs.network = err
}

// SetStorageError records why volumes cannot be used; nil when they can. Volume plugins set it while they start.
func (s *State) SetStorageError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs.storage = err
}

// SetPodCIDR records the address range of the node's pods.
func (s *State) SetPodCIDR(cidr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.podCIDR = cidr
}

// PodCIDR is the address range of the node's pods, empty when there is none.
func (s *State) PodCIDR() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.podCIDR
}

// SetRuntimeHandlers records the handlers of the runtime. They are kept ordered by name, so that the node status does
// not change when only their order does.
func (s *State) SetRuntimeHandlers(handlers []kubecontainer.RuntimeHandler) {
	sorted := slices.Clone(handlers)
	slices.SortStableFunc(sorted, func(a, b kubecontainer.RuntimeHandler) int { return strings.Compare(a.Name, b.Name) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = sorted
}

// RuntimeHandlers are the handlers of the runtime, ordered by name; nil while unknown. The slice must not be modified.
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

// RuntimeFeatures are the features of the runtime, nil while unknown. They must not be modified.
func (s *State) RuntimeFeatures() *kubecontainer.RuntimeFeatures {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.features
}

// RuntimeErrors is nil when the runtime was found ready not longer ago than maxSilence, says that it is ready, and all
// health checks pass. The checks are called without a lock.
func (s *State) RuntimeErrors() error {
	s.mu.RLock()
	lastSync, runtimeErr, checks := s.lastSync, s.errs.runtime, s.checks
	s.mu.RUnlock()

	var errs []error
	switch {
	case lastSync.IsZero():
		errs = append(errs, errNeverSynced)
	case time.Since(lastSync) >= s.maxSilence:
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

// NetworkErrors is nil when the runtime's network is ready.
func (s *State) NetworkErrors() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return asError([]error{s.errs.network})
}

// StorageErrors is nil when volumes can be used.
func (s *State) StorageErrors() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return asError([]error{s.errs.storage})
}

// asError joins errors as stock prints them, without nil ones. It keeps an empty aggregate from becoming an error that
// is not nil.
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
