package eviction

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
	"github.com/plimsoll-project/plimsoll/test/fakekill"
)

// silence is a node whose container runtime can be made to hang: what needs it blocks until the context ends or the
// runtime answers again. What is local goes on, unless that is made to hang too.
type silence struct {
	broken
	collections, locals gauge
	// stuck blocks what heeds no context: the summary, and what is local.
	stuck atomic.Pointer[chan struct{}]
}

// gauge counts calls, and how many are under way at a time.
type gauge struct{ calls, now, most atomic.Int32 }

func (g *gauge) enter() (leave func()) {
	g.calls.Add(1)
	if now := g.now.Add(1); now > g.most.Load() {
		g.most.Store(now)
	}
	return func() { g.now.Add(-1) }
}

func newSilence() *silence {
	runtimeSilent.Set(0) // what the manager of another test has left
	return &silence{broken: broken{node: newNode(), processes: 10}}
}

func (s *silence) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	defer s.collections.enter()()
	if c := s.stuck.Load(); c != nil {
		<-*c
	}
	summary, err := s.node.Get(ctx, update)
	if err == nil {
		summary.Node.Rlimit, err = s.broken.RlimitStats()
	}
	return summary, err
}

func (s *silence) ImageFsStats(ctx context.Context) (images, containers *statsapi.FsStats, err error) {
	if _, err := s.node.Get(ctx, false); err != nil {
		return nil, nil, err
	}
	return s.broken.ImageFsStats(ctx)
}

func (s *silence) ListPodStats(ctx context.Context) ([]statsapi.PodStats, error) {
	summary, err := s.node.Get(ctx, false)
	if err != nil {
		return nil, err
	}
	return summary.Pods, nil
}

// RootFsStats needs the kernel only.
func (s *silence) RootFsStats() (*statsapi.FsStats, error) {
	defer s.locals.enter()()
	if c := s.stuck.Load(); c != nil {
		<-*c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &statsapi.FsStats{AvailableBytes: u(s.disk.capacity - s.disk.used), CapacityBytes: u(s.disk.capacity)}, nil
}

// hangs makes the runtime hang until answers is called.
func (s *silence) hangs() (answers func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{})
	s.hang = c
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hang = nil
		close(c)
	}
}

// collector reads this summary, and the parts of the node beside it.
func (s *silence) collector(t *testing.T, summary collect.Summary) Collector {
	return collectorOf(t, collect.Sources{Summary: summary, DiskInfo: s, Parts: s})
}

func (s *silence) config(t *testing.T, thresholds settings.ThresholdConfig) Config {
	c := s.node.config(t, thresholds)
	c.Collector, c.Memory = s.collector(t, s), &kernel{node: s.node}
	return c
}

func (s *silence) forks(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = n
}

func (s *silence) RlimitStats() (*statsapi.RlimitStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most, processes := int64(1000), s.processes
	return &statsapi.RlimitStats{MaxPID: &most, NumOfRunningProcesses: &processes}, nil
}

var diskAndPIDs = settings.ThresholdConfig{
	Hard: map[string]string{"nodefs.available": "10Gi", "imagefs.available": "15Gi", "memory.available": "1Gi"},
	Soft: map[string]string{"pid.available": "100"}, SoftGracePeriods: map[string]string{"pid.available": "1h"},
}

// TestD10WhatNeedsNoRuntimeIsSeenWhileItHangs: disk, PIDs and memory of the node. Nobody is evicted for the disk until
// it is known again who fills it.
func TestD10WhatNeedsNoRuntimeIsSeenWhileItHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilence()
		s.add("small", gi)
		s.add("writer", gi).disk = 20 * gi
		s.available(20 * gi)
		s.full(50 * gi)
		run(t, s.node, s.config(t, diskAndPIDs), func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			answers := s.hangs()
			wait(10 * time.Minute)
			s.full(5 * gi)
			s.forks(950)
			wait(20 * time.Second)
			expect(t, "disk pressure", m.IsUnderDiskPressure(), true)
			expect(t, "PID pressure", m.IsUnderPIDPressure(), true)
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), false)
			s.forks(10)
			wait(time.Hour)
			expect(t, "evicted for the disk", s.killed(), []string{})
			for _, condition := range policy.ConditionTypes {
				blind, _ := m.UnknownSignals(condition)
				expect(t, "blind signals of "+string(condition), blind, []string(nil))
			}
			expect(t, "it is said that nobody is evicted for disks", len(s.eventsOf(eventRuntimeSilent)), 1)
			expect(t, "metric", shown(t, "plimsoll_eviction_runtime_silent"), 1.0)
			expect(t, "collections at a time", s.collections.most.Load(), int32(1))
			if calls := s.collections.calls.Load(); calls > 40 {
				t.Errorf("%d collections in an hour", calls)
			}
			answers()
			wait(15 * time.Second)
			expect(t, "evicted when the runtime answers", s.killed(), []string{"writer/1"})
			expect(t, "metric when it answers", shown(t, "plimsoll_eviction_runtime_silent"), 0.0)
		})
		expect(t, "collections when it is over", s.collections.now.Load(), int32(0))
	})
}

// TestD10ImagesOfTheirOwnAreBlindWhileTheRuntimeHangs: stats of their file system come from the runtime.
func TestD10ImagesOfTheirOwnAreBlindWhileTheRuntimeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilence()
		s.node.images = &diskState{capacity: 100 * gi}
		s.available(20 * gi)
		run(t, s.node, s.config(t, diskAndPIDs), func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			answers := s.hangs()
			wait(2 * time.Minute)
			blind, _ := m.UnknownSignals(v1.NodeDiskPressure)
			expect(t, "blind", blind, []string{"imagefs.available", "containerfs.available"})
			expect(t, "events", len(s.eventsOf(eventSignalUnknown)), 1)
			answers()
			wait(15 * time.Second)
			blind, _ = m.UnknownSignals(v1.NodeDiskPressure)
			expect(t, "blind when it answers", blind, []string(nil))
		})
	})
}

// TestD10MemoryIsSeenWhileEverythingElseHangs: the runtime, and the file system of the node. Nothing piles up.
func TestD10MemoryIsSeenWhileEverythingElseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilence()
		s.add("hog", 9*gi)
		s.available(20 * gi)
		run(t, s.node, s.config(t, diskAndPIDs), func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			answers := s.hangs()
			stuck := make(chan struct{})
			s.stuck.Store(&stuck)
			wait(time.Hour)
			expect(t, "collections at a time", s.collections.most.Load(), int32(1))
			expect(t, "local ones at a time", s.locals.most.Load() <= 2, true)
			blind, _ := m.UnknownSignals(v1.NodeDiskPressure)
			expect(t, "blind", blind, []string{"nodefs.available", "imagefs.available", "containerfs.available"})
			s.available(100 * mi)
			wait(time.Second)
			expect(t, "kills", s.killed(), []string{"hog/1"})
			s.stuck.Store(nil)
			close(stuck)
			answers()
			wait(30 * time.Second)
			blind, _ = m.UnknownSignals(v1.NodeDiskPressure)
			expect(t, "blind when all is well", blind, []string(nil))
		})
	})
}

// TestKillsThatWaitForTheRuntimeBringNoOthers: every kill runs into its time-out, and the pods die only when they are
// killed past the runtime. One is enough, and so one is all that is evicted.
func TestKillsThatWaitForTheRuntimeBringNoOthers(t *testing.T) {
	for name, test := range map[string]struct {
		dies time.Duration
		want []string
	}{
		"the first dies in the end":     {150 * time.Second, []string{"a-hog"}},
		"the first does not die either": {time.Hour, []string{"a-hog", "b-hog"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSilence()
				s.add("a-hog", 9*gi)
				s.add("b-hog", 8*gi)
				s.add("c-hog", 7*gi)
				s.available(7 * gi)
				c := s.config(t, hard("1Gi"))
				c.Kill = fakekill.Waiting(func(_ context.Context, r podkill.Request) error {
					s.mu.Lock()
					s.kills = append(s.kills, r.Pod.Name)
					s.mu.Unlock()
					<-time.After(10 * time.Second)
					return context.DeadlineExceeded
				})
				run(t, s.node, c, func(m *Manager, wait func(time.Duration)) {
					wait(time.Second)
					answers := s.hangs()
					wait(5 * time.Minute)
					s.available(500 * mi)
					wait(test.dies)
					s.mu.Lock()
					s.node.pods["a-hog"].memory = 0
					s.mu.Unlock()
					wait(6*time.Minute - min(test.dies, 3*time.Minute))
					got := slices.Compact(slices.Sorted(slices.Values(s.killed())))
					expect(t, "evicted", got, test.want)
					answers()
				})
			})
		})
	}
}

// The last kill of package escalation comes within the time for which eviction waits for a pod.
func TestWaitForAHangingRuntimeCoversTheEscalation(t *testing.T) {
	l := escalation.DefaultLimits()
	if last := l.Slack + l.Margin + l.SilentDelay + l.Margin; last > policy.SilentPatience {
		t.Errorf("killed after %v, waited for %v", last, policy.SilentPatience)
	}
}

// TestACollectionIsGivenUp: a request that is lost is made again. A runtime that is slow is not cut short.
func TestACollectionIsGivenUp(t *testing.T) {
	for _, test := range []struct{ timeout, want time.Duration }{{0, 2 * time.Minute}, {time.Second, 2 * time.Minute},
		{5 * time.Minute, 5 * time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSilence()
			defer s.hangs()()
			c := s.config(t, hard("1Gi"))
			c.RuntimeTimeout = test.timeout
			run(t, s.node, c, func(m *Manager, wait func(time.Duration)) {
				wait(test.want - time.Second)
				expect(t, "collections under way", s.collections.now.Load(), int32(1))
				wait(2 * time.Second)
				expect(t, "collections after it was given up", s.collections.now.Load(), int32(0))
				wait(10 * time.Second)
				expect(t, "collections under way again", s.collections.now.Load(), int32(1))
				expect(t, "collections", s.collections.calls.Load(), int32(2))
			})
		})
	}
}

// TestTheFirstCollectionHangs: memory is watched before there are any other stats. What was never collected is unknown.
func TestTheFirstCollectionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilence()
		answers := s.hangs()
		s.add("hog", 9*gi)
		s.available(100 * mi)
		run(t, s.node, s.config(t, diskAndPIDs), func(m *Manager, wait func(time.Duration)) {
			wait(time.Second)
			expect(t, "kills", s.killed(), []string{"hog/1"})
			expect(t, "disk pressure", m.IsUnderDiskPressure(), false)
			expect(t, "PID pressure", m.IsUnderPIDPressure(), false)
			for sig, o := range m.last.Load().Snapshot.Signals {
				direct := sig == int(snapshot.MemoryAvailable) || sig == int(snapshot.AllocatableMemoryAvailable)
				expect(t, snapshot.Signal(sig).String()+" is known", o.Known(), direct)
			}
			answers()
		})
	})
}
