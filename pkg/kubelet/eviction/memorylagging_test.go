package eviction

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// laggingStats is a kernel where page cache fills the cgroup of all pods, and whose statistics of that cgroup are from
// when a pod that grows was last read.
type laggingStats struct {
	priced
	limit int64
	// spare is the page cache by the statistics.
	spare int64
}

// page returns the page cache of all pods.
func (k *laggingStats) page() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(0, k.limit-k.kernel.used())
}

func (k *laggingStats) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	c, err := k.priced.Counters(how)
	cache := snapshot.Bytes(k.page())
	c.Pods, c.Node, c.NodeSpare = c.Pods+cache, c.Node+cache, cache
	return c, err
}

func (k *laggingStats) observed(r snapshot.MemoryReading) snapshot.MemoryReading {
	r.Pods.Capacity, r.Pods.Available = k.limit, k.spare
	r.PodsUsed += snapshot.Bytes(k.page())
	return r
}

func (k *laggingStats) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	r := k.priced.ReadMemory(how)
	k.spare = k.page()
	return k.observed(r)
}

func (k *laggingStats) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	return k.observed(k.priced.ReadPods(how, uids))
}

func (k *laggingStats) ReadPod(how snapshot.Counting, uid types.UID) (snapshot.PodMemory, error) {
	k.spare = k.page()
	return k.priced.ReadPod(how, uid)
}

// watchAllPods gives all pods together a threshold of 100 MiB as well.
func (b *burst) watchAllPods(t *testing.T) {
	b.config.Thresholds = b.node.config(t, settings.ThresholdConfig{
		AllocatableEnforced: []string{"pods"}, Hard: map[string]string{"memory.available": "100Mi"},
	}).Thresholds
}

// ownCache is such a kernel where the page cache is that of the pod that grows, whose counter stays the same.
type ownCache struct{ laggingStats }

func (k *ownCache) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	n, cache := len(into), snapshot.Bytes(k.page())
	into = k.laggingStats.PodUsages(into)
	for i := range into[n:] {
		if into[n+i].UID == "hog" {
			into[n+i].Usage += cache
		}
	}
	return into
}

// A pod uses up page cache, of others or its own, of which the statistics of all pods show nothing while no pod is
// read. It is fenced before half of the headroom is used up.
func TestHogWherePageCacheFillsThePodsLimit(t *testing.T) {
	for _, rate := range []int64{50, 100, 400, 1000} {
		for phase := range 16 {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 200*mi, 0, "hog")
				own := &ownCache{laggingStats{priced: *b.pricedKernel()}}
				k := &own.laggingStats
				k.limit = 2 * gi
				b.add("rest", k.limit-300*mi-b.used())
				b.available(20 * gi)
				if b.config.Memory = k; phase%2 == 1 {
					b.config.Memory = own
				}
				b.watchAllPods(t)
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(12*time.Second + time.Duration(phase)*21731*time.Microsecond)
					b.grows("hog", rate*mi)
					crossing := 200 * time.Second / time.Duration(rate)
					wait(crossing + 50*time.Second/time.Duration(rate))
					if got := b.fencer.victims(); len(got) != 1 || got[0].pod != "hog" {
						t.Errorf("%d MiB/s, phase %d: victims %v", rate, phase, got)
					}
				})
			})
		}
	}
}

// A pod uses up its own page cache, so that its counter stands still, beside one that grows slowly, and after a burst
// of another. It is the only victim, and fenced.
func TestHogThatUsesUpItsOwnPageCacheBesideOthers(t *testing.T) {
	for _, rate := range []int64{100, 400, 1000, 1700} {
		for phase := range 12 {
			synctest.Test(t, func(t *testing.T) {
				const above = 60
				b := newBurst(t, 0, 0, "hog", "slow", "burst")
				k := &ownCache{laggingStats{priced: *b.pricedKernel()}}
				k.limit = 8 * gi
				b.add("rest", k.limit-(100+above+30+8)*mi-b.used())
				b.available(20 * gi)
				b.config.Memory = k
				b.watchAllPods(t)
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(12*time.Second + time.Duration(phase)*21731*time.Microsecond)
					b.grows("slow", 4*mi)
					b.grows("burst", 150*mi)
					wait(200 * time.Millisecond)
					b.freeze("burst")
					wait(700 * time.Millisecond)
					b.grows("hog", rate*mi)
					wait((above + 60) * time.Second / time.Duration(rate))
					if !b.onlyFenced("hog") {
						t.Errorf("%d MiB/s, phase %d: victims %v", rate, phase, b.fencer.victims())
					}
				})
			})
		}
	}
}
