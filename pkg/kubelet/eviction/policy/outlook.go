package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// NearHorizon is within which time a threshold has to be met, at the present growth, for LevelNear.
const NearHorizon = 5 * time.Minute

// outlookHorizon is the greatest time to a threshold that an outlook has.
const outlookHorizon = 24 * time.Hour

// Level says how far a signal is from its hard threshold. Its values are those of Node labels.
type Level string

// The levels. LevelUnknown is that of a signal that cannot be observed and whose threshold was not met before.
const (
	LevelUnknown Level = ""
	LevelCalm    Level = "calm"
	LevelNear    Level = "near"
	LevelMet     Level = "met"
)

// SignalOutlook is how far a signal is from its hard threshold, and how fast it approaches it. If there are several
// hard thresholds, it is the one that is met first. Soft thresholds and those in dry run do not count: no pod is
// evicted at once for them. Amounts are in the unit of the signal.
type SignalOutlook struct {
	Signal snapshot.Signal
	// Level is LevelMet exactly if Decide counts a hard threshold of the signal as met, with its minimum reclaim, and also
	// while the signal is unknown. LevelNear: the threshold is met within NearHorizon at the present growth.
	Level Level
	// Known is false if the signal could not be observed. Then there is nothing but Signal and Level.
	Known bool
	// Observed is when the observation was true, on the monotonic clock of the snapshot.
	Observed            time.Time
	Available, Capacity int64
	// Threshold is the amount below which the threshold is met, or stays met: while it is met, its minimum reclaim is
	// included. Headroom is how much more is available; it is negative exactly if the threshold is met.
	Threshold, Headroom int64
	// Growth is the growth of what is used, in bytes per second, at least 0. It is that of MemoryGrowth, and 0 for signals
	// that are not about memory, whose growth is not measured.
	Growth float64
	// TimeToThreshold is the time from Observed until the threshold is met at the present growth. It is nil if that is
	// more than a day, or no growth is measured, and while the threshold is met.
	TimeToThreshold *time.Duration
}

// Outlook returns an entry for each signal that has a hard threshold and was observed once, in the order of signals.
// It is a function of the arguments of Decide, and computed from the same states of thresholds and the same growth:
// what it says about the snapshot agrees with the decision about it. The growth of memory is known early only if
// Rules.ReportOutlook or Rules.ReportMemoryGrowth is set.
func Outlook(s *snapshot.Snapshot, rules *Rules, state State) []SignalOutlook {
	enforced, _ := rules.split()
	next := rulesState{Thresholds: state.Enforced.thresholdsAfter(s, enforced.Thresholds)}
	for sig := range next.Signals {
		next.Signals[sig] = state.Enforced.Signals[sig].observe(&s.Signals[sig], s)
	}
	r := &round{snapshot: s, rules: enforced, last: &state.Enforced, next: &next}
	return r.outlook()
}

func (r *round) outlook() (list []SignalOutlook) {
	for _, sig := range snapshot.AllSignals() {
		if o, ok := r.outlookOf(sig); ok {
			list = append(list, o)
		}
	}
	return list
}

// outlookOf returns the outlook of a signal; false if it has no hard threshold or was never observed.
func (r *round) outlookOf(sig snapshot.Signal) (o SignalOutlook, ok bool) {
	observed := &r.snapshot.Signals[sig]
	o = SignalOutlook{Signal: sig, Known: observed.Known()}
	for i := range r.next.Thresholds {
		t, state := &r.rules.Thresholds[i], &r.next.Thresholds[i]
		if t.Signal != sig || t.Soft || state.LastKnown == neverObserved {
			continue
		}
		if state.indicatesPressure() {
			o.Level = LevelMet
		}
		if o.Known {
			amount := t.floor(observed.Capacity)
			if state.indicatesPressure() {
				amount = t.target(observed.Capacity)
			}
			if !ok || amount > o.Threshold {
				o.Threshold = amount
			}
		}
		ok = true
	}
	if !ok || !o.Known {
		return o, ok
	}
	o.Observed = r.taken(sig)
	o.Available, o.Capacity = observed.Available, observed.Capacity
	o.Headroom = saturatingAdd(o.Available, -o.Threshold)
	o.Growth = r.usageGrowth(sig)
	if o.Level == LevelMet {
		return o, true
	}
	o.Level = LevelCalm
	g := ThresholdGrowth{Signal: sig, Distance: o.Headroom, Rate: o.Growth}
	if left, ok := g.MetWithin(outlookHorizon); ok {
		o.TimeToThreshold = &left
		if left <= NearHorizon {
			o.Level = LevelNear
		}
	}
	return o, true
}

// usageGrowth returns the growth of what is used of a signal, in bytes per second; 0 if it is not measured.
func (r *round) usageGrowth(sig snapshot.Signal) float64 {
	switch sig {
	case snapshot.MemoryAvailable:
		g := r.steadyGrowth()
		return g.pods + g.system
	case snapshot.AllocatableMemoryAvailable:
		return r.steadyGrowth().pods
	default:
		return 0
	}
}
