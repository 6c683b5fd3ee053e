package eviction

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
)

// writes has a pod write to the disk.
func (s *silence) writes(pod string, amount int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node.pods[pod].disk += amount
	s.disk.used += amount
}

// cleansUp has a pod, which has ended, leave the disk.
func (s *silence) cleansUp(pod string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uncleaned, pod)
	s.disk.used -= s.node.pods[pod].disk
}

// A job writes 35 GiB within seconds and ends, by itself or by an eviction for memory. Until its volumes are removed,
// another pod fills the disk. What the job releases is known to be enough: no pod is evicted for the disk, and no
// image is removed.
func TestReleaseOfAPodThatEndsWhileStatsAreKept(t *testing.T) {
	for _, evicted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSilence()
			job := s.add("job", 9*gi)
			s.add("writer", gi)
			s.available(2 * gi)
			s.full(92 * gi)
			s.uncleaned["job"] = true
			run(t, s.node, s.config(t, diskAndPIDs), func(_ *Manager, wait func(time.Duration)) {
				wait(2 * time.Second)
				s.writes("job", 35*gi)
				s.writes("writer", 3*gi)
				wait(20 * time.Second)
				var want []string
				if evicted {
					s.available(500 * mi)
					wait(500 * time.Millisecond)
					want = []string{"job/1"}
				}
				s.mu.Lock()
				job.stopped, job.memory = true, 0
				s.mu.Unlock()
				s.available(9 * gi)
				s.full(54 * gi) // Nothing is removed yet.
				wait(time.Second)
				s.writes("writer", 50*gi)
				wait(21 * time.Second)
				s.cleansUp("job")
				wait(20 * time.Second)
				expect(t, "evicted", len(s.killed()), len(want))
				expect(t, "node-level reclaims", len(s.reclaimed), 0)
			})
		})
	}
}

// slowAnswers is a node whose runtime takes some time for each answer.
type slowAnswers struct {
	*silence
	takes time.Duration
}

func (s *slowAnswers) answer() {
	s.mu.Lock()
	takes := s.takes
	s.mu.Unlock()
	<-time.After(takes)
}

func (s *slowAnswers) ImageFsStats(ctx context.Context) (images, containers *statsapi.FsStats, err error) {
	s.answer()
	return s.silence.ImageFsStats(ctx)
}

func (s *slowAnswers) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	s.answer()
	return s.silence.Get(ctx, update)
}

// Limits on local storage begin to be enforced while a collection is under way that keeps stats of pods. A pod exceeds
// its limit by these, and does not any more.
func TestLimitsThatAreEnforcedWhileStatsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowAnswers{silence: newSilence()}
		p := s.add("limited", gi, limitedStorage)
		p.disk = 2 * gi
		s.available(20 * gi)
		s.full(80 * gi)
		c := s.config(t, diskAndPIDs)
		c.LocalStorageCapacityIsolation = true
		c.Options = new(optionsWith(func(o *settings.Options) { o.LocalStorageLimits = v1alpha1.LimitsOff }))
		c.Collector = collectorOf(t, collect.Sources{Summary: s, DiskInfo: s, Parts: s})
		run(t, s.node, c, func(m *Manager, wait func(time.Duration)) {
			wait(2 * time.Second)
			s.mu.Lock()
			p.disk, s.takes = gi/2, 2*time.Second
			s.mu.Unlock()
			wait(21 * time.Second) // A collection is under way.
			m.SetOptions(optionsWith(func(*settings.Options) {}))
			wait(10 * time.Second)
			expect(t, "evicted", s.killed(), []string{})
		})
	})
}

// moreThanTheSummary is a kernel by which 1 GiB more is available than by the summary.
type moreThanTheSummary struct{ kernel }

func (k *moreThanTheSummary) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	r := k.kernel.ReadMemory(how)
	r.Node.Available += gi
	return r
}

func (k *moreThanTheSummary) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	return onlyPods(k.ReadMemory(how), uids)
}

// A round says whether its memory is from the kernel or from the summary.
func TestSourceOfMemoryWhileStatsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilence()
		s.add("pod", gi)
		s.available(20 * gi)
		s.full(92 * gi)
		c := s.config(t, diskAndPIDs)
		c.Memory = &moreThanTheSummary{kernel{node: s.node}}
		run(t, s.node, c, func(m *Manager, wait func(time.Duration)) {
			for _, kernel := range []bool{false, true, true, false} {
				wait(time.Second)
				round := m.last.Load()
				expect(t, "read from the kernel", round.MemoryRead, kernel)
				want := 20 * gi
				if kernel {
					want += gi
				}
				expect(t, "available", round.Snapshot.Signals[snapshot.MemoryAvailable].Available, want)
				wait(9 * time.Second)
			}
		})
	})
}

// The runtime hangs while a collection is under way that keeps stats of pods. When it answers again, they are not used
// any more.
func TestAgeOfStatsAfterTheRuntimeHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilence()
		s.add("pod", gi)
		s.available(2 * gi) // Memory is scarce: a snapshot has all pods.
		s.full(80 * gi)
		c := s.config(t, diskAndPIDs)
		run(t, s.node, c, func(m *Manager, wait func(time.Duration)) {
			wait(15 * time.Second)
			answers := s.hangs()
			for second := range 150 {
				if second == 100 {
					answers()
				}
				wait(time.Second)
				r := m.last.Load().Snapshot
				if r.RuntimeSilent || r.PodsAwaited || r.Pods[0].Usage == nil {
					continue
				}
				age := r.WallTime.Sub(time.Unix(0, r.Pods[0].Usage.MemoryDate))
				if age > podStatsEvery+shortPatience {
					t.Fatalf("after %d s stats of pods are %v old", second, age)
				}
			}
		})
	})
}

// The runtime becomes slow: each answer takes 20 s. It counts as silent once, until the first of them; then it is known
// that it is slow.
func TestRuntimeThatBecomesSlowWhileStatsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowAnswers{silence: newSilence()}
		s.add("pod", gi)
		s.available(20 * gi)
		s.full(80 * gi)
		c := s.config(t, diskAndPIDs)
		c.Collector = collectorOf(t, collect.Sources{Summary: s, DiskInfo: s, Parts: s})
		run(t, s.node, c, func(m *Manager, wait func(time.Duration)) {
			wait(2 * time.Second)
			s.mu.Lock()
			s.takes = 20 * time.Second
			s.mu.Unlock()
			times, silent := 0, false
			for range 300 {
				wait(time.Second)
				now := m.last.Load().Snapshot.RuntimeSilent
				if now && !silent {
					times++
				}
				silent = now
			}
			expect(t, "times that it counts as silent", times, 1)
		})
	})
}
