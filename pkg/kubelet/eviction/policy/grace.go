package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// minNotMet is the shortest time without the threshold being met after which its grace period starts again.
const minNotMet = 30 * time.Second

// thresholdStatus is the state of a threshold by one observation.
type thresholdStatus uint8

const (
	neverObserved thresholdStatus = iota
	// unknown: the signal could not be observed.
	unknown
	notMet
	met
)

// thresholdState is the state of one threshold.
//
// The grace period runs between two snapshots in which the threshold is met. It pauses while the threshold is not met
// or the signal is unknown, so that one observation above the threshold does not extend an hour of pressure by the
// whole grace period (D16 in docs/defects.md). It starts again
//
//   - when the threshold has not been met for max(30 s, grace period / 4),
//   - at once when the minimum reclaim is available as well, and
//   - at once when the threshold is not met after an eviction for it, since that has had its effect.
type thresholdState struct {
	Signal snapshot.Signal `json:"signal"`
	Soft   bool            `json:"soft,omitempty"`

	// Status is that of the last snapshot, LastKnown the last one that was not unknown.
	Status    thresholdStatus `json:"status"`
	LastKnown thresholdStatus `json:"lastKnown"`
	// Updated is the time of the last snapshot.
	Updated time.Time `json:"updated,omitzero"`
	// GracePeriodElapsed is how much of the grace period has passed, NotMetFor for how long the threshold has not been
	// met.
	GracePeriodElapsed time.Duration `json:"gracePeriodElapsedNanoseconds,omitempty"`
	NotMetFor          time.Duration `json:"notMetForNanoseconds,omitempty"`
	// Active: the threshold is met, and its grace period has passed.
	Active bool `json:"active,omitempty"`
	// Evicted: a pod was evicted for the threshold since it became active.
	Evicted bool `json:"evicted,omitempty"`
	// UnknownSince is the time since when the signal is unknown; zero while it is known.
	UnknownSince time.Time `json:"unknownSince,omitzero"`
}

// observe returns the state after a snapshot taken at now.
func (s thresholdState) observe(t *Threshold, o snapshot.Observation, now time.Time) thresholdState {
	since := max(0, now.Sub(s.Updated))
	before := s.Status
	s.Updated = now
	if !o.Known() {
		return s.withUnknownSignal(now)
	}
	s.UnknownSince = time.Time{}
	if t.met(o, s.Active) {
		if before == met {
			s.GracePeriodElapsed += since
		}
		s.Status, s.LastKnown, s.NotMetFor = met, met, 0
		s.Active = s.GracePeriodElapsed >= t.GracePeriod
		return s
	}
	if before == notMet {
		s.NotMetFor += since
	}
	s.Status, s.LastKnown, s.Active = notMet, notMet, false
	resolved := t.MinReclaim != nil && t.target(o.Capacity) > t.floor(o.Capacity) && !t.met(o, true)
	if s.Evicted || resolved || s.NotMetFor >= max(minNotMet, t.GracePeriod/4) {
		s.GracePeriodElapsed, s.Evicted = 0, false
	}
	return s
}

// withUnknownSignal returns the state after a snapshot in which the signal is unknown. The threshold cannot act then.
// If it was met before, its grace period continues when the signal is known again.
func (s thresholdState) withUnknownSignal(now time.Time) thresholdState {
	s.Status = unknown
	if s.UnknownSince.IsZero() {
		s.UnknownSince = now
	}
	return s
}

// indicatesPressure reports whether the node condition is True because of this threshold: it is met, or was met when
// the signal was last known.
func (s thresholdState) indicatesPressure() bool {
	return s.Status == met || (s.Status == unknown && s.LastKnown == met)
}

// acts reports whether pods may be evicted for the threshold.
func (s thresholdState) acts() bool { return s.Status == met && s.Active }

// remaining returns how much of the grace period is left.
func (s thresholdState) remaining(t *Threshold) time.Duration {
	return max(0, t.GracePeriod-s.GracePeriodElapsed)
}
