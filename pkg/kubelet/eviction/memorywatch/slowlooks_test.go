package memorywatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// slowLooks is a sawtooth whose pods take long to look at.
type slowLooks struct {
	*sawtooth
	look time.Duration
}

func (s slowLooks) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	s.spent += s.look
	s.now = s.now.Add(s.look)
	return append(into, snapshot.PodUsage{UID: "idle"})
}

func (slowLooks) ReadPod(snapshot.Counting, types.UID) (snapshot.PodMemory, error) {
	return snapshot.PodMemory{}, nil
}

func (s slowLooks) ReadPods(snapshot.Counting, []types.UID) snapshot.MemoryReading {
	return s.ReadMemory(snapshot.Counting{})
}

// watchSlowly returns a watcher of pods that take long to look at, with a threshold of 1 GiB.
func watchSlowly(t *testing.T, s *sawtooth, look time.Duration) *Watcher {
	t.Helper()
	w := New(slowLooks{s, look}, func() time.Time { return s.now })
	w.Adopt(&settings.Options{
		MonitoringPeriod: 10 * time.Second, WorstGrowth: 2 * gi, Fence: true, KillTime: time.Second,
	})
	w.Arm(thresholds(t, "1Gi"))
	return w
}

// decided is a decision by which the hard threshold is met, or is not.
func decided(met bool) *policy.Decision {
	d := &policy.Decision{}
	for i, c := range policy.ConditionTypes {
		d.Conditions[i] = policy.Condition{Type: c, HardMet: met && c == v1.NodeMemoryPressure}
	}
	return d
}

// Looks at pods take so long that a few use up what reading may cost. The crossing is read soon all the same: looks are
// rarer at rest, and most of the credit is left for reads of the counters when a threshold is approached. With or
// without decisions: while a threshold is met, each read looks at the pods.
func TestCrossingIsReadInTimeWhereLooksTakeLong(t *testing.T) {
	for _, decides := range []bool{false, true} {
		for _, look := range []time.Duration{2, 5, 10, 20} {
			for _, rate := range []int64{20, 50, 100, 400} {
				t.Run(fmt.Sprintf("decides %t, looks of %d ms, %d MiB per second", decides, look, rate), func(t *testing.T) {
					testSlowLooks(t, look*time.Millisecond, rate, decides)
				})
			}
		}
	}
}

func testSlowLooks(t *testing.T, look time.Duration, rate int64, decides bool) {
	t.Helper()
	const length = time.Hour
	begin := time.Unix(1000, 0)
	s := &sawtooth{now: begin, begin: begin, cost: time.Millisecond, above: 200 * mi, rate: rate * mi, rest: time.Minute}
	w := watchSlowly(t, s, look)
	var late []time.Duration
	for above := true; s.now.Sub(begin) < length; {
		s.now = snapshot.Later(s.now, w.next)
		if r := w.Check(); r != nil && decides {
			w.Decided(decided(r.Node.Available < gi), nil)
		}
		left := s.left(s.now)
		if above && left < 0 {
			late = append(late, time.Duration(float64(-left)/float64(s.rate)*float64(time.Second)))
		}
		above = left >= 0
	}
	slices.Sort(late)
	if latest := late[len(late)-1]; len(late) < 40 || latest > 12*time.Millisecond+look {
		t.Errorf("%d crossings were read, one %v late: %v", len(late), latest, late)
	}
	if most := length/PauseShare + Credit/PauseShare + look; s.spent > most {
		t.Errorf("reading took %v of %v, want at most %v", s.spent, length, most)
	}
}

// Memory is freed while so much is owed that nothing but the counters is read. That pressure has ended is reported as
// soon as less is owed.
func TestReliefWhileTheCreditIsUsedUp(t *testing.T) {
	for _, early := range []bool{false, true} {
		begin := time.Unix(1000, 0)
		s := &sawtooth{now: begin, begin: begin, cost: time.Millisecond, above: -10 * mi, rate: 1, rest: time.Hour}
		w := watchSlowly(t, s, time.Millisecond)
		for w.Check() == nil {
			s.now = s.now.Add(time.Second)
		}
		w.Decided(decided(true), nil)
		w.costs.paid = s.now.Add(5 * time.Second)
		if early {
			s.above = 500 * mi // More than Credit is owed.
		}
		if s.now = s.now.Add(300 * time.Millisecond); w.Check() != nil {
			t.Fatal("read although the credit is used up")
		}
		s.above = 500 * mi
		s.now = w.costs.paid.Add(-Credit + 500*time.Millisecond)
		if w.Check() == nil {
			t.Errorf("freed early: %t: the end of pressure is not reported when %v are owed", early, w.costs.owed(s.now))
		}
		if w.Decided(decided(false), nil); w.reliefDue {
			t.Error("the end of pressure is reported again")
		}
	}
}
