package eviction

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// wholeSummaries is a node that records when its summary is read.
type wholeSummaries struct {
	*node
	began time.Time
	at    []time.Duration
}

func (s *wholeSummaries) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	s.mu.Lock()
	s.at = append(s.at, time.Since(s.began).Round(time.Second))
	s.mu.Unlock()
	return s.node.Get(ctx, update)
}

// seconds returns when the summary was read, in seconds since the beginning.
func (s *wholeSummaries) seconds() (list []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.at {
		list = append(list, int(at.Seconds()))
	}
	return list
}

func limitedStorage(pod *v1.Pod) {
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
}

// TestWhenStatsOfPodsAreRead: every half minute on a node that has enough of everything, and with the collection that
// finds out that a decision may need them.
func TestWhenStatsOfPodsAreRead(t *testing.T) {
	thresholds := settings.ThresholdConfig{Hard: map[string]string{"memory.available": "1Gi", "nodefs.available": "10Gi"}}
	every := []int{0, 10, 20, 30, 40, 50, 60}
	for name, test := range map[string]struct {
		// configure changes the configuration, happens what is so 15 s after the beginning.
		configure func(*wholeSummaries, *Config)
		happens   func(*wholeSummaries, *Manager)
		want      []int
	}{
		"nothing happens": {want: []int{0, 30, 60}},
		"memory is scarce but is not used up": {
			configure: func(s *wholeSummaries, _ *Config) { s.available(gi + 10*mi) }, want: []int{0, 30, 60},
		},
		"less than half is used up": {
			happens: func(s *wholeSummaries, _ *Manager) { s.available(12 * gi) }, want: []int{0, 30, 60},
		},
		"half of the memory that was left is used up": {
			happens: func(s *wholeSummaries, _ *Manager) { s.available(10 * gi) }, want: []int{0, 20, 50},
		},
		"a tenth of the disk that was left is used up": {
			happens: func(s *wholeSummaries, _ *Manager) { s.full(91 * gi) }, want: []int{0, 30, 60},
		},
		"a quarter of the disk that was left is used up": {
			happens: func(s *wholeSummaries, _ *Manager) { s.full(77 * gi) }, want: []int{0, 20, 50},
		},
		"a pod is added": {
			happens: func(s *wholeSummaries, _ *Manager) { s.add("another", gi) }, want: []int{0, 20, 50},
		},
		"a pod has a limit on local storage": {
			configure: func(s *wholeSummaries, _ *Config) { s.add("limited", gi, limitedStorage) }, want: every,
		},
		"limits on local storage are not enforced": {
			configure: func(s *wholeSummaries, c *Config) {
				s.add("limited", gi, limitedStorage)
				c.LocalStorageCapacityIsolation = false
			}, want: []int{0, 30, 60},
		},
		"plugins use what pods use": {
			configure: func(_ *wholeSummaries, c *Config) {
				o := settings.DefaultOptions()
				o.AllPods = true
				c.Options = &o
			}, want: every,
		},
		"memory cannot be read": {configure: func(_ *wholeSummaries, c *Config) { c.Memory = nil }, want: every},
		"the summary fails": {
			configure: func(s *wholeSummaries, _ *Config) { s.summaryErr = errBroken }, want: every,
		},
		"another part of the agent requests a round": {
			happens: func(_ *wholeSummaries, m *Manager) { m.Wake() }, want: []int{0, 15, 45},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &wholeSummaries{node: newNode(), began: time.Now()}
				s.add("pod", gi)
				s.available(20 * gi)
				s.full(100 * gi)
				c := s.config(t, thresholds)
				c.LocalStorageCapacityIsolation = true
				c.Collector, c.Memory = s.collector(t, s), &kernel{node: s.node}
				if test.configure != nil {
					test.configure(s, &c)
				}
				run(t, s.node, c, func(m *Manager, wait func(time.Duration)) {
					wait(15 * time.Second)
					if test.happens != nil {
						test.happens(s, m)
					}
					wait(50 * time.Second)
				})
				if got := s.seconds(); !slices.Equal(got, test.want) {
					t.Errorf("read after %v s, want %v", got, test.want)
				}
			})
		})
	}
}

// TestVictimOfADiskThatFillsWhileStatsAreKept: the pod that fills the disk is found by new stats, and not by kept ones,
// by which another pod uses most.
func TestVictimOfADiskThatFillsWhileStatsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilence()
		s.add("first", gi).disk = 2 * gi
		writer := s.add("writer", gi)
		s.available(20 * gi)
		s.full(50 * gi)
		run(t, s.node, s.config(t, diskAndPIDs), func(_ *Manager, wait func(time.Duration)) {
			wait(15 * time.Second)
			s.mu.Lock()
			writer.disk = 45 * gi
			s.mu.Unlock()
			s.full(5 * gi)
			wait(35 * time.Second)
			expect(t, "evicted", s.killed(), []string{"writer/1"})
		})
	})
}

// TestRuntimeThatHangsWhileStatsAreKept: that is seen by the next collection, not by the next that reads stats of pods.
func TestRuntimeThatHangsWhileStatsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilence()
		s.add("pod", gi)
		s.available(20 * gi)
		s.full(50 * gi)
		run(t, s.node, s.config(t, diskAndPIDs), func(_ *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			answers := s.hangs()
			wait(5*time.Second + collectPatience + time.Second)
			expect(t, "metric", shown(t, "plimsoll_eviction_runtime_silent"), 1.0)
			answers()
			wait(time.Second)
			expect(t, "metric when it answers", shown(t, "plimsoll_eviction_runtime_silent"), 0.0)
			before := s.collections.calls.Load()
			wait(10 * time.Second)
			expect(t, "whole collections after that", s.collections.calls.Load() > before, true)
		})
	})
}
