package pressure

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	mi     = int64(1) << 20
	gi     = int64(1) << 30
	period = 10 * time.Second
	maxAge = 3 * period
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// skew is the difference between the clock of snapshots and that of the plugin.
const skew = 1000 * time.Hour

// outlook returns the outlook of memory of which so much more than the threshold is available, of 20 GiB. left is the
// time to the threshold, 0 for none.
func outlook(headroom int64, left time.Duration, observed time.Time) policy.SignalOutlook {
	o := policy.SignalOutlook{Signal: snapshot.MemoryAvailable, Level: policy.LevelCalm, Known: true, Observed: observed,
		Available: headroom + gi, Capacity: 20 * gi, Threshold: gi, Headroom: headroom}
	switch {
	case headroom < 0:
		o.Level = policy.LevelMet
	case left > 0:
		o.TimeToThreshold, o.Growth = &left, float64(headroom)/left.Seconds()
		if left <= policy.NearHorizon {
			o.Level = policy.LevelNear
		}
	}
	return o
}

// history is a tracker that a test moves through time as the plugin does.
type history struct {
	tracker
	now time.Time
}

// pass lets time pass. The tracker is advanced whenever it is due.
func (h *history) pass(d time.Duration, changed func()) {
	end := h.now.Add(d)
	for {
		due := h.due(h.now, maxAge)
		if due.IsZero() || due.After(end) {
			break
		}
		h.now = due
		h.advance(h.now, maxAge)
		changed()
	}
	h.now = end
}

func (h *history) observe(list ...policy.SignalOutlook) {
	h.tracker.observe(list, h.now.Add(-skew), h.now, maxAge)
}

func (h *history) memory() *tracked { return &h.signals[snapshot.MemoryAvailable] }

// steps are the three reported steps of memory.
func (h *history) steps() [3]int {
	s := h.memory()
	return [3]int{s.level.step, s.headroom.step, s.left.step}
}

// TestReportedValues is a story: what is reported of a node whose memory is used up and comes free again.
func TestReportedValues(t *testing.T) {
	h := &history{now: start}
	for i, step := range []struct {
		after    time.Duration
		headroom int64
		left     time.Duration
		want     entry
	}{
		{0, 10 * gi, 0, entry{Level: "calm", Available: "11Gi", Headroom: "50%"}},
		{10 * time.Second, 9*gi + 1, 0, entry{Level: "calm", Available: "10Gi", Headroom: "45%"}},
		{10 * time.Second, 10 * gi, 0, entry{Level: "calm", Available: "10Gi", Headroom: "45%"}},
		{10 * time.Second, 7 * gi, 12 * time.Minute, entry{Level: "calm", Available: "8Gi", Headroom: "35%",
			GrowthPerSecond: "9Mi", TimeToThreshold: "30m"}},
		{10 * time.Second, 6 * gi, 5 * time.Minute, entry{Level: "near", Available: "7Gi", Headroom: "30%",
			GrowthPerSecond: "20Mi", TimeToThreshold: "5m"}},
		{10 * time.Second, gi, 25 * time.Second, entry{Level: "near", Available: "2Gi", Headroom: "5%",
			GrowthPerSecond: "40Mi", TimeToThreshold: "30s"}},
		{10 * time.Second, -1, 0, entry{Level: "met", Available: "0", Headroom: "-5%"}},
		{10 * time.Second, 19 * gi, 0, entry{Level: "met", Available: "0", Headroom: "-5%"}},
		{50 * time.Second, 8 * gi, 0, entry{Level: "met", Available: "0", Headroom: "-5%"}},
		{9 * time.Second, 9 * gi, 0, entry{Level: "met", Available: "0", Headroom: "-5%"}},
		// The worst headroom of the minute is 8 GiB, less the margin of half a GiB.
		{time.Second, 19 * gi, 0, entry{Level: "calm", Available: "8Gi", Headroom: "35%"}},
		{time.Minute, 19 * gi, 0, entry{Level: "calm", Available: "9Gi", Headroom: "40%"}},
		{time.Minute, 19 * gi, 0, entry{Level: "calm", Available: "19Gi", Headroom: "90%"}},
	} {
		for ; step.after > period; step.after -= period { // so that nothing gets too old
			h.pass(period, func() {})
			h.observe(outlook(step.headroom, step.left, h.now.Add(-skew)))
		}
		h.pass(step.after, func() {})
		h.observe(outlook(step.headroom, step.left, h.now.Add(-skew)))
		step.want.Signal, step.want.Threshold = "memory.available", "1Gi"
		if got := h.entries(); len(got) != 1 || got[0] != step.want {
			t.Errorf("step %d:\n%+v, want\n%+v", i, got, step.want)
		}
	}
}

// TestTimePasses: a threshold comes nearer between two rounds, counted from the time of the observation.
func TestTimePasses(t *testing.T) {
	h := &history{now: start}
	h.observe(outlook(4*gi, 5*time.Minute+20*time.Second, h.now.Add(-skew-10*time.Second)))
	for i, want := range []struct {
		level, left string
	}{{"calm", "10m"}, {"calm", "10m"}, {"near", "5m"}} {
		if got := h.entries()[0]; string(got.Level) != want.level || got.TimeToThreshold != want.left {
			t.Errorf("after %d rounds: %+v", i, got)
		}
		h.pass(5*time.Second, func() {})
	}
}

// TestOldValuesAreAbsent: what is too old is not reported. A threshold that was met stays met while its signal is
// unknown, without amounts; another signal that is unknown is not reported.
func TestOldValuesAreAbsent(t *testing.T) {
	h := &history{now: start}
	h.observe(outlook(4*gi, 0, h.now.Add(-skew)))
	h.pass(maxAge, func() {})
	if len(h.entries()) != 1 {
		t.Error("not reported, as old as may be")
	}
	h.pass(1, func() {})
	if got := h.entries(); len(got) != 0 || !h.due(h.now, maxAge).IsZero() || len(h.labels()) != 0 {
		t.Errorf("%+v", got)
	}
	for _, level := range []policy.Level{policy.LevelUnknown, policy.LevelMet} {
		h = &history{now: start}
		h.observe(outlook(-1, 0, h.now.Add(-skew)))
		for range 4 {
			h.pass(period, func() {})
			h.observe(policy.SignalOutlook{Signal: snapshot.MemoryAvailable, Level: level})
		}
		got := h.entries()
		if level == policy.LevelUnknown && len(got) != 0 ||
			level == policy.LevelMet && (len(got) != 1 || got[0] != entry{Signal: "memory.available", Level: "met"}) {
			t.Errorf("level %q: %+v", level, got)
		}
	}
	h.observe()
	if got := h.entries(); len(got) != 0 {
		t.Errorf("without threshold: %+v", got)
	}
}

// TestAnotherThresholdIsReported: a threshold or capacity that is another one is reported, one that fluctuates is not.
func TestAnotherThresholdIsReported(t *testing.T) {
	h := &history{now: start}
	o := outlook(4*gi+100*mi, 0, h.now.Add(-skew))
	h.observe(o)
	for _, test := range []struct {
		capacity, threshold int64
		want                string
	}{{20*gi + mi, gi, "1Gi"}, {20 * gi, gi + mi, "1Gi"}, {20 * gi, gi + 20*mi, "1044Mi"}} {
		o.Capacity, o.Threshold = test.capacity, test.threshold
		h.observe(o)
		if got := h.entries()[0]; got.Threshold != test.want || got.Headroom != "20%" {
			t.Errorf("%+v: %+v", test, got)
		}
	}
}

// observation is what a random history observes.
type observation struct {
	at    time.Time
	steps [3]int
}

// TestWorseAtOnceBetterAfterAMinute: whatever is observed, what is reported is at no time better than anything observed
// in the last minute, nor than what is observed then.
func TestWorseAtOnceBetterAfterAMinute(t *testing.T) {
	better := 0
	rapid.Check(t, func(t *rapid.T) {
		h := &history{now: start}
		var seen []observation
		last := [3]int{-headroomSteps, -headroomSteps, -headroomSteps}
		check := func() {
			s := h.memory()
			observed := observation{at: h.now}
			observed.steps[0], _, _ = s.levelSteps(h.now)
			observed.steps[1] = headroomStep(s.latest.Headroom, s.latest.Capacity)
			observed.steps[2], _, _ = s.timeSteps(h.now)
			seen = append(seen, observed)
			got := h.steps()
			for i := range got {
				for _, o := range seen {
					if h.now.Sub(o.at) < betterAfter && got[i] < o.steps[i] {
						t.Fatalf("value %d: %d is reported, %v before %d was observed", i, got[i], h.now.Sub(o.at), o.steps[i])
					}
				}
				if got[i] < last[i] {
					better++
				}
			}
			last = got
		}
		var headroom int64
		var left int
		for i := range rapid.IntRange(1, 80).Draw(t, "rounds") {
			if i == 0 || rapid.IntRange(0, 9).Draw(t, "turns") == 0 {
				headroom, left = rapid.Int64Range(-1, 36).Draw(t, "headroom"), rapid.IntRange(0, 40).Draw(t, "left")
			}
			h.observe(outlook((headroom+rapid.Int64Range(0, 3).Draw(t, "more"))*gi/2,
				time.Duration(max(0, left+rapid.IntRange(-1, 1).Draw(t, "later")))*time.Minute/2, h.now.Add(-skew)))
			check()
			h.pass(time.Duration(rapid.IntRange(1, 12).Draw(t, "pause"))*time.Second, check)
		}
	})
	if better == 0 {
		t.Error("nothing became better")
	}
}

// TestNoisyTimesDoNotFlap: a time that fluctuates by a tenth at the bound of a step, or of near, in whatever rhythm, is
// reported as the worse step all the time.
func TestNoisyTimesDoNotFlap(t *testing.T) {
	for i, bound := range timeSteps {
		for _, rhythm := range []int{1, 6, 7, 20} {
			h := &history{now: start}
			for round := range 200 {
				left := bound.most - bound.most/20
				if round/rhythm%2 > 0 {
					left = bound.most + bound.most/20 + period
				}
				h.observe(outlook(10*gi, left, h.now.Add(-skew)))
				if got := h.steps(); got[2] < i+1 {
					t.Fatalf("%s, round %d: %v", bound.name, round, h.entries())
				}
				h.pass(period, func() {})
			}
			if got := h.steps(); bound.most >= time.Minute && got[2] != i+1 {
				t.Fatalf("%s: %v", bound.name, h.entries())
			}
		}
	}
}

// TestNoiseChangesLittle: in an idle hour, with observations that fluctuate by less than half a step, the content
// changes at most once in five minutes, and not at all after the first ten minutes.
func TestNoiseChangesLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{now: start}
		base := rapid.Int64Range(2*gi, 17*gi).Draw(t, "headroom")
		noise := rapid.Int64Range(0, gi/4-1).Draw(t, "noise")
		minutes := rapid.IntRange(45, 600).Draw(t, "minutes")
		seeds := rapid.SliceOfN(rapid.Int64Range(-1000, 1000), 17, 17).Draw(t, "seeds")
		var changes []time.Time
		var content []entry
		check := func() {
			got := h.entries()
			if content != nil && !reflect.DeepEqual(got, content) {
				changes = append(changes, h.now)
			}
			content = got
		}
		for i := range 360 {
			var left time.Duration
			if seeds[i%13] > 0 {
				left = time.Duration(minutes) * time.Minute
			}
			h.observe(outlook(base+noise*seeds[(i*7+i/17)%17]/1000, left, h.now.Add(-skew)))
			check()
			h.pass(period, check)
		}
		for i, at := range changes {
			if i > 0 && at.Sub(changes[i-1]) < 5*time.Minute || at.Sub(start) > 10*time.Minute {
				t.Fatalf("changes at %v", changes)
			}
		}
	})
}

// TestConstantValuesAreReported: what does not change is reported after two minutes, but for the margins.
func TestConstantValuesAreReported(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{now: start}
		for range 20 {
			h.observe(outlook(rapid.Int64Range(-1, 18).Draw(t, "headroom")*gi,
				time.Duration(rapid.IntRange(0, 20).Draw(t, "left"))*time.Minute, h.now.Add(-skew)))
			h.pass(period, func() {})
		}
		headroom := rapid.Int64Range(-1, 18).Draw(t, "headroom") * gi
		for range 13 {
			h.observe(outlook(headroom, 0, h.now.Add(-skew)))
			h.pass(period, func() {})
		}
		want := [3]int{calmStep, clearHeadroomStep(headroom, 20*gi), 0}
		if headroom < 0 {
			want = [3]int{metStep, 1, len(timeSteps)}
		}
		got := h.steps()
		if got[1] == headroomStep(headroom, 20*gi) {
			want[1] = got[1]
		}
		if got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// TestALeakIsReported: with rounds every ten seconds, from 30 s before the crossing on the reported time is right to
// one step, also between rounds, and the level is near before the threshold is met.
func TestALeakIsReported(t *testing.T) {
	for _, rate := range []int64{5 * mi, 20 * mi} {
		h := &history{now: start}
		free := 8 * gi
		crossing := start.Add(time.Duration(free / rate * int64(time.Second)))
		check := func() {
			left := crossing.Sub(h.now)
			if left > 30*time.Second || left <= 0 {
				return
			}
			got := h.entries()[0]
			if got.Level != "near" || got.TimeToThreshold != "30s" && got.TimeToThreshold != "1m" {
				t.Fatalf("%v before the crossing: %+v", left, got)
			}
		}
		for h.now.Before(crossing) {
			// The observation is a few seconds old.
			observed := h.now.Add(-4 * time.Second)
			left := crossing.Sub(observed)
			h.observe(outlook(int64(left.Seconds()*float64(rate)), left, observed.Add(-skew)))
			for range 10 {
				check()
				h.pass(time.Second, check)
			}
		}
	}
}
