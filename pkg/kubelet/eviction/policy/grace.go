package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// minNotMet is the shortest time for which a threshold must not be met until its grace period starts again.
const minNotMet = 30 * time.Second

// thresholdStatus is what an observation says about a threshold.
type thresholdStatus uint8

const (
	neverObserved thresholdStatus = iota
	// unknown: the signal could not be observed.
	unknown
	notMet
	met
)

// thresholdState follows one threshold from snapshot to snapshot.
//
// The grace period runs between two snapshots that both found the threshold met. It pauses while the threshold is not
// met or the signal is unknown, so that a single good sample does not spare a pod when the threshold has been met for
// an hour (D16 of the list of stock's defects). It starts again when the threshold was not met for max(30 s,
// grace/4), at once when the minimum reclaim is available too, and at once when the threshold is not met after it has
// evicted: then the eviction has done what it was for.
type thresholdState struct {
	Signal snapshot.Signal `json:"signal"`
	Soft   bool            `json:"soft,omitempty"`

	// Status is that of the last snapshot, LastKnown the last status that was not unknown.
	Status    thresholdStatus `json:"status"`
	LastKnown thresholdStatus `json:"lastKnown"`
	// Updated is the time of the last snapshot.
	Updated time.Time `json:"updated,omitzero"`
	// GracePeriodElapsed is how much of the grace period is over, NotMetFor for how long the threshold has not been met.
	GracePeriodElapsed time.Duration `json:"gracePeriodElapsedNanoseconds,omitempty"`
	NotMetFor          time.Duration `json:"notMetForNanoseconds,omitempty"`
	// Active: it is met, and the grace period is over.
	Active bool `json:"active,omitempty"`
	// Evicted: a pod was evicted for it since it became active.
	Evicted bool `json:"evicted,omitempty"`
	// UnknownSince is since when the signal is unknown, zero while it is known.
	UnknownSince time.Time `json:"unknownSince,omitzero"`
}

// observe returns the state after one more snapshot.
func (s thresholdState) observe(t *Threshold, o snapshot.Observation, now time.Time) thresholdState {
	since := max(0, now.Sub(s.Updated))
	before := s.Status
	s.Updated = now
	if !o.Known() {
		return s.missing(now)
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

// missing keeps what is known. Nothing is evicted for a signal that is unknown, so the threshold is not active; but one
// that was met continues as met when the signal is known again.
func (s thresholdState) missing(now time.Time) thresholdState {
	s.Status = unknown
	if s.UnknownSince.IsZero() {
		s.UnknownSince = now
	}
	return s
}

// pressing reports whether the node condition should be True because of this threshold: it is met, or it was met when
// its signal was last known.
func (s thresholdState) pressing() bool {
	return s.Status == met || (s.Status == unknown && s.LastKnown == met)
}

// acts reports whether pods may be evicted for the threshold now.
func (s thresholdState) acts() bool { return s.Status == met && s.Active }

// remaining is how much of the grace period is left while the threshold is met.
func (s thresholdState) remaining(t *Threshold) time.Duration {
	return max(0, t.GracePeriod-s.GracePeriodElapsed)
}
