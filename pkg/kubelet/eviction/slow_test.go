package eviction

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// slowness is a node whose container runtime answers each request of a collection after a while. What a summary has
// of the node is from the beginning of the collection, as in stock's.
type slowness struct {
	*silence
	requests int
	each     time.Duration
	// hangs is the request, counted from one, that gets no answer; zero for none.
	hangs int
}

func (s *slowness) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	s.mu.Lock()
	requests, each, hangs := s.requests, s.each, s.hangs
	s.mu.Unlock()
	defer s.collections.enter()()
	begin, err := s.node.Get(ctx, update)
	if err != nil {
		return nil, err
	}
	for i := range requests {
		answer := time.After(each)
		if i+1 == hangs {
			answer = nil
		}
		select {
		case <-answer:
			RuntimeAnswered(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	summary, err := s.silence.Get(ctx, update)
	if err == nil {
		summary.Node = begin.Node
	}
	return summary, err
}

func (s *slowness) set(requests int, each time.Duration, hangs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.each, s.hangs = requests, each, hangs
}

func (s *slowness) config(t *testing.T, thresholds settings.ThresholdConfig) Config {
	c := s.silence.config(t, thresholds)
	c.Collector = s.collector(t, s)
	return c
}

// TestASlowRuntimeIsNotSilent: pods are evicted for a full disk although a collection takes minutes.
// Meanwhile what needs no runtime is seen, and nothing is blind.
func TestASlowRuntimeIsNotSilent(t *testing.T) {
	for name, test := range map[string]struct {
		requests int
		each     time.Duration
		images   bool
	}{
		"many requests": {20, 3 * time.Second, false},
		"many requests, images on their own disk":    {20, 3 * time.Second, true},
		"more than a request may take":               {20, 10 * time.Second, false},
		"more than one may take, images apart":       {20, 10 * time.Second, true},
		"one long request":                           {1, 20 * time.Second, false},
		"one long request, images on their own disk": {1, 20 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slowness{silence: newSilence()}
				s.add("small", gi)
				s.add("writer", gi).disk = 20 * gi
				s.available(20 * gi)
				s.full(50 * gi)
				if test.images {
					s.node.images = &diskState{capacity: 100 * gi, used: 50 * gi}
				}
				run(t, s.node, s.config(t, diskAndPIDs), func(m *Manager, wait func(time.Duration)) {
					wait(5 * time.Second)
					s.set(test.requests, test.each, 0)
					collection := time.Duration(test.requests) * test.each
					// It is known after a few collections how slow the runtime is.
					wait(3*collection + time.Minute)
					events := len(s.eventsOf(eventRuntimeSilent)) + len(s.eventsOf(eventSignalUnknown))
					s.mu.Lock()
					if test.images {
						s.node.images.used = 95 * gi
					} else {
						s.disk.used = 95 * gi
					}
					s.mu.Unlock()
					if !test.images {
						wait(26 * time.Second)
						expect(t, "disk pressure is seen before a collection ends", m.IsUnderDiskPressure(), true)
					}
					wait(5*collection + time.Minute)
					expect(t, "evicted", s.killed(), []string{"writer/1"})
					blind, _ := m.UnknownSignals(v1.NodeDiskPressure)
					expect(t, "blind signals", blind, []string(nil))
					expect(t, "silence is shown", shown(t, "plimsoll_eviction_runtime_silent"), 0.0)
					expect(t, "events", len(s.eventsOf(eventRuntimeSilent))+len(s.eventsOf(eventSignalUnknown))-events, 0)
					s.set(0, 0, 0)
				})
			})
		})
	}
}

// TestALongCollectionHasTheNewestStatsOfTheNode: what needs no runtime is read again at its end.
func TestALongCollectionHasTheNewestStatsOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowness{silence: newSilence(), requests: 4, each: time.Second}
		s.full(50 * gi)
		s.forks(10)
		time.AfterFunc(2*time.Second, func() { s.full(5 * gi); s.forks(20) })
		f := s.collector(t, s).Collect(t.Context())
		if f.Err != nil {
			t.Fatal(f.Err)
		}
		expect(t, "available on the node's disk", f.Signals[snapshot.NodeFsAvailable].Available, 5*gi)
		expect(t, "available for images on it", f.Signals[snapshot.ImageFsAvailable].Available, 5*gi)
		expect(t, "available PIDs", f.Signals[snapshot.PIDAvailable].Available, 1000-20)
	})
}

// TestSilenceIsCountedFromTheLastAnswer: both until the runtime counts as silent and until a collection is given up.
func TestSilenceIsCountedFromTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowness{silence: newSilence()}
		s.available(20 * gi)
		run(t, s.node, s.config(t, diskAndPIDs), func(m *Manager, wait func(time.Duration)) {
			wait(podStatsEvery - 5*time.Second)
			s.set(10, 4*time.Second, 6)
			// The second complete collection begins, and gets its last answer 20 s later.
			wait(25*time.Second + 14*time.Second)
			expect(t, "silence is shown before", shown(t, "plimsoll_eviction_runtime_silent"), 0.0)
			wait(12 * time.Second)
			expect(t, "silence is shown after", shown(t, "plimsoll_eviction_runtime_silent"), 1.0)
			before := s.collections.calls.Load()
			wait(collectAtMost - 27*time.Second)
			expect(t, "collections begun meanwhile", s.collections.calls.Load()-before, int32(0))
			expect(t, "under way before the bound", s.collections.now.Load(), int32(1))
			wait(2 * time.Second)
			expect(t, "under way after the bound", s.collections.now.Load(), int32(0))
			s.set(0, 0, 0)
		})
	})
}
