package memorywatch

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

var errNotRead = errors.New("not read")

func TestTrend(t *testing.T) {
	begin := time.Unix(1000, 0)
	for _, test := range []struct {
		name string
		// left is what is available each 10 ms, in MiB.
		left []int64
		want float64
	}{
		{"one read", []int64{100}, 0},
		{"growth", []int64{100, 98}, 200},
		{"less than the lag of the counters", []int64{100, 98, 98}, 200},
		{"growth after a rest", []int64{100, 100, 100, 100, 98}, 200},
		{"the end of growth", append([]int64{100, 98}, repeated(98, 26)...), 0},
		{"memory that is freed during growth", []int64{100, 98, 120}, 200},
		{"memory that is freed after growth", append([]int64{100, 98}, append(repeated(98, 24), 120)...), -88},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got trend
			for i, left := range test.left {
				got.observe(left*mi, begin.Add(time.Duration(i)*10*time.Millisecond))
			}
			if rate := got.rate / float64(mi); rate < test.want-1 || rate > test.want+1 {
				t.Errorf("%v MiB per second, want %v", rate, test.want)
			}
		})
	}
}

func repeated(n int64, count int) []int64 {
	list := make([]int64, count)
	for i := range list {
		list[i] = n
	}
	return list
}

// anyThread is a thread clock that is the same for all threads.
type anyThread struct{}

func (anyThread) LockThread()   {}
func (anyThread) UnlockThread() {}

// sawtooth is a node on which reading takes CPU time. Its memory is used up at a rate, from above the threshold to far
// below it, again and again.
type sawtooth struct {
	anyThread
	now   time.Time
	begin time.Time
	cost  time.Duration
	// Each read with a number that this divides takes costly; none if it is zero.
	every, reads int
	costly       time.Duration
	spent        time.Duration
	above, rate  int64
	// rest is how long nothing is used up after each time that the threshold was met.
	rest time.Duration
}

// above the threshold; the period has a rest, the way to the threshold, and as much beyond it.
func (s *sawtooth) left(at time.Time) int64 {
	way := time.Duration(float64(s.above) / float64(s.rate) * float64(time.Second))
	in := at.Sub(s.begin)%(s.rest+2*way) - s.rest
	return s.above - max(0, int64(in.Seconds()*float64(s.rate)))
}

func (s *sawtooth) Counters(snapshot.Counting) (snapshot.MemoryCounters, error) {
	s.reads++
	cost := s.cost
	if s.every > 0 && s.reads%s.every == 0 {
		cost = s.costly
	}
	s.spent += cost
	s.now = s.now.Add(cost)
	return snapshot.MemoryCounters{Node: snapshot.Bytes(32*gi - gi - s.left(s.now))}, nil
}

func (s *sawtooth) ReadMemory(snapshot.Counting) snapshot.MemoryReading {
	counters, _ := s.Counters(snapshot.Counting{})
	return snapshot.MemoryReading{
		Node: snapshot.Observation{Available: 32*gi - int64(counters.Node), Capacity: 32 * gi},
		Pods: snapshot.Observation{Err: errNotRead},
	}
}

func (s *sawtooth) ThreadTime() time.Duration { return s.spent }

// The crossing of a threshold that is approached is read a few milliseconds later, also where one read of the counters
// takes so much CPU time that its share would only allow for one in 50 ms; and that share is kept all the same.
func TestApproachedThresholdIsReadInTime(t *testing.T) {
	for _, rate := range []int64{20, 100, 400} {
		// A read that now and then takes 20 times as long as the others delays a crossing by little more than itself. If
		// many do, only the share is kept.
		for _, every := range []int{0, 97, 10} {
			testApproach(t, rate, every)
		}
	}
}

func testApproach(t *testing.T, rate int64, every int) {
	const cost, costly, length = time.Millisecond, 20 * time.Millisecond, 10 * time.Minute
	t.Run(fmt.Sprintf("%d MiB per second, costly each %d", rate, every), func(t *testing.T) {
		begin := time.Unix(1000, 0)
		s := &sawtooth{now: begin, begin: begin, cost: cost, every: every, costly: costly, above: 200 * mi,
			rate: rate * mi, rest: 20 * time.Second}
		w := New(s, func() time.Time { return s.now })
		w.period, w.worst = 10*time.Second, 2*gi
		w.node = scope{known: true, capacity: 32 * gi}
		w.floors = []floor{{signal: snapshot.MemoryAvailable, hard: true, amount: gi}}
		var latest time.Duration
		crossings := 0
		for above := true; s.now.Sub(begin) < length; {
			s.now = snapshot.Later(s.now, w.next)
			w.Check()
			left := s.left(s.now)
			if above && left < 0 {
				crossings++
				latest = max(latest, time.Duration(float64(-left)/float64(s.rate)*float64(time.Second)))
			}
			above = left >= 0
		}
		most := 12 * time.Millisecond
		if every > 0 {
			most += 2 * costly
		}
		if latest > most && every != 10 || crossings < 10 {
			t.Errorf("%d crossings were read, one %v late, want at most %v", crossings, latest, most)
		}
		if most := length/PauseShare + Credit/PauseShare + costly; s.spent > most {
			t.Errorf("reading took %v of %v, want at most %v", s.spent, length, most)
		}
	})
}

// The trend does not take one charge of 64 pages between two reads for growth.
func TestTrendOfBatches(t *testing.T) {
	begin := time.Unix(1000, 0)
	for _, rate := range []int64{5, 20} {
		var got trend
		worst := 0.0
		for i := range 1000 {
			at := time.Duration(i) * 2 * time.Millisecond
			used := snapshot.Bytes(at.Seconds()*float64(rate*mi)) >> 18 << 18
			got.observe(1000*mi-int64(used), begin.Add(at))
			worst = max(worst, got.rate)
		}
		if worst > 2*float64(rate*mi) {
			t.Errorf("%d MiB/s: the rate is up to %.0f MiB/s", rate, worst/float64(mi))
		}
	}
}
