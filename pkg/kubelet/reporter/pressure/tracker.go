package pressure

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// betterAfter is for how long a value must have been better than the reported one before a better one is reported.
const betterAfter = time.Minute

// gauge is a reported step. The zero value has reported nothing.
type gauge struct {
	set  bool
	step int
	// betterSince is the time since when all steps were better than the reported one, zero while they are not; worst is
	// the worst step since then.
	betterSince time.Time
	worst       int
}

// next returns the gauge at a time at which the value is at a step. clear is the step with the margin that a better
// value must have, and not less than step.
func (g gauge) next(step, clear int, now time.Time) gauge {
	switch {
	case !g.set || step > g.step:
		return gauge{set: true, step: step}
	case clear >= g.step:
		g.betterSince = time.Time{}
		return g
	case g.betterSince.IsZero():
		g.betterSince, g.worst = now, clear
		return g
	}
	g.worst = max(g.worst, clear)
	if now.Sub(g.betterSince) < betterAfter {
		return g
	}
	g = gauge{set: true, step: g.worst}
	if clear < g.step {
		g.betterSince, g.worst = now, clear
	}
	return g
}

// due returns when the gauge may change without a new value, zero for never.
func (g *gauge) due() time.Time {
	if g.betterSince.IsZero() {
		return time.Time{}
	}
	return g.betterSince.Add(betterAfter)
}

// tracked is what is known of a signal, and what is reported of it.
type tracked struct {
	// latest is the newest outlook with amounts, leveled the time of the newest with a level, and amounts that of latest;
	// all times are on the clock of the plugin. Both are zero if there is none.
	latest           policy.SignalOutlook
	leveled, amounts time.Time
	// crossing is when the threshold is met at the present growth, zero if it is not.
	crossing time.Time

	level, headroom, left gauge
	// threshold and capacity are those with which the steps are reported. growth is the growth when they last changed
	// while there was a time to the threshold.
	threshold, capacity int64
	growth              float64
}

// tracker has all signals. Times are parameters, and do not decrease from call to call.
type tracker struct {
	signals [snapshot.NumSignals]tracked
	// observed: a signal has had a level since the start of the agent.
	observed bool
	// restored are the levels that an earlier run has reported, until the first observation of the signal, restoredAt is
	// when they were restored; zero if there are none.
	restored   [snapshot.NumSignals]gauge
	restoredAt time.Time
}

// observe takes over the outlook of a snapshot that was taken at a time of its own clock, and is received now. What is
// older than maxAge is no longer reported. A signal that has no outlook any more has no threshold.
func (t *tracker) observe(list []policy.SignalOutlook, taken, now time.Time, maxAge time.Duration) {
	var listed [snapshot.NumSignals]bool
	for i := range list {
		o := &list[i]
		listed[o.Signal] = true
		t.signals[o.Signal].observe(o, taken, now, maxAge)
	}
	for sig := range t.signals {
		if !listed[sig] {
			t.signals[sig] = tracked{}
		}
	}
	t.takeRestored(now, maxAge)
	t.advance(now, maxAge)
}

// observe takes over an outlook, unless its observation is older than maxAge: the eviction manager uses the last one
// again while there is no other. Its level counts nevertheless if the threshold is met.
func (s *tracked) observe(o *policy.SignalOutlook, taken, now time.Time, maxAge time.Duration) {
	old := o.Known && taken.Sub(o.Observed) > maxAge
	if old && o.Level != policy.LevelMet {
		return
	}
	if o.Level != policy.LevelUnknown {
		s.latest.Level, s.leveled = o.Level, now
	}
	if !o.Known || old {
		return
	}
	s.latest, s.amounts, s.crossing = *o, now, time.Time{}
	if o.TimeToThreshold != nil {
		s.crossing = now.Add(*o.TimeToThreshold - taken.Sub(o.Observed))
	}
}

// advance lets time pass: thresholds come nearer, values have been better for long enough, observations are too old.
func (t *tracker) advance(now time.Time, maxAge time.Duration) {
	for sig := range t.signals {
		t.signals[sig].advance(now, maxAge)
	}
}

func (s *tracked) advance(now time.Time, maxAge time.Duration) {
	if s.leveled.IsZero() || now.Sub(s.leveled) > maxAge {
		*s = tracked{}
		return
	}
	before := [...]gauge{s.level, s.headroom, s.left}
	if s.amounts.IsZero() || now.Sub(s.amounts) > maxAge {
		s.amounts, s.crossing = time.Time{}, time.Time{}
		s.headroom, s.left = gauge{}, gauge{}
	} else {
		o := &s.latest
		s.headroom = s.headroom.next(headroomStep(o.Headroom, o.Capacity), clearHeadroomStep(o.Headroom, o.Capacity), now)
		s.left = s.left.next(s.timeSteps(now))
	}
	s.level = s.level.next(s.levelSteps(now))
	s.pin(before)
}

// timeSteps returns the step of the time to the threshold, and the one that a better time must have. A threshold that
// is met is at the last step.
func (s *tracked) timeSteps(now time.Time) (step, clear int, _ time.Time) {
	if s.latest.Level == policy.LevelMet {
		return len(timeSteps), len(timeSteps), now
	}
	if s.crossing.IsZero() {
		return 0, 0, now
	}
	left := max(0, s.crossing.Sub(now))
	return timeStep(left), timeStep(withoutMargin(left)), now
}

// levelSteps returns the step of the level, and the one that a better level must have. A threshold comes near by the
// passing of time alone.
func (s *tracked) levelSteps(now time.Time) (step, clear int, _ time.Time) {
	if s.latest.Level == policy.LevelMet {
		return metStep, metStep, now
	}
	if s.crossing.IsZero() {
		return calmStep, calmStep, now
	}
	left := s.crossing.Sub(now)
	if left <= policy.NearHorizon || s.latest.Level == policy.LevelNear {
		return nearStep, nearStep, now
	}
	if withoutMargin(left) <= policy.NearHorizon {
		return calmStep, nearStep, now
	}
	return calmStep, calmStep, now
}

// pin keeps what is reported beside the steps as it was when a step last changed. Without that, it would change with
// each observation. A threshold or a capacity that has become another one is reported when no step is about to change.
func (s *tracked) pin(before [3]gauge) {
	changed, pending := false, false
	for i, g := range [...]gauge{s.level, s.headroom, s.left} {
		changed = changed || g.set != before[i].set || g.step != before[i].step
		pending = pending || !g.betterSince.IsZero()
	}
	o := &s.latest
	if (changed || s.growth == 0) && o.TimeToThreshold != nil {
		s.growth = o.Growth
	}
	if changed || !pending && (another(s.threshold, o.Threshold) || another(s.capacity, o.Capacity)) {
		s.threshold, s.capacity = o.Threshold, o.Capacity
	}
}

// another reports whether two amounts differ by more than a hundredth: the capacity of some file systems fluctuates.
func another(a, b int64) bool {
	difference := float64(a) - float64(b)
	return max(difference, -difference) > float64(max(a, b))/100
}

// due returns the next time at which something may change without an outlook, zero for never.
func (t *tracker) due(now time.Time, maxAge time.Duration) (first time.Time) {
	earlier := func(at time.Time) {
		if at.After(now) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for sig := range t.signals {
		s := &t.signals[sig]
		if s.leveled.IsZero() {
			continue
		}
		// What is as old as maxAge is still reported.
		earlier(s.leveled.Add(maxAge + 1))
		for _, g := range [...]*gauge{&s.level, &s.headroom, &s.left} {
			if !g.betterSince.IsZero() {
				earlier(g.due())
			}
		}
		if s.amounts.IsZero() {
			continue
		}
		earlier(s.amounts.Add(maxAge + 1))
		if !s.crossing.IsZero() {
			for i := range timeSteps {
				earlier(s.crossing.Add(-timeSteps[i].most))
			}
		}
	}
	return first
}
