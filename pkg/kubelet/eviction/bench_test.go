package eviction

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stock "k8s.io/kubernetes/pkg/kubelet/eviction"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// benchmarkPlay is a node with the default thresholds of stock and a number of pods.
func benchmarkPlay(pods int) (*play, settings.ThresholdConfig) {
	p := newPlay(1)
	p.odd, p.dedicated, p.split, p.pods = false, false, false, nil
	for i := range pods {
		p.addPod(i)
	}
	configured := settings.ThresholdConfig{AllocatableEnforced: []string{"pods"}, Hard: map[string]string{
		"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%",
		"imagefs.inodesFree": "5%",
	}}
	for _, sig := range snapshot.AllSignals() {
		p.levels[sig] = &level{capacity: 100 * gi, available: 50 * gi}
	}
	return p, configured
}

func benchmarkScene(p *play, starved bool) *scene {
	p.levels[snapshot.MemoryAvailable].available = 50 * gi
	if starved {
		p.levels[snapshot.MemoryAvailable].available = 99 * mi
	}
	return &scene{pods: p.pods, summary: p.summary(p.now, 0)}
}

// stamp makes a scene new without building it again, so that only the managers are measured.
func (s *scene) stamp(now time.Time) {
	at := metav1.NewTime(now)
	n := &s.summary.Node
	n.Memory.Time, n.Fs.Time, n.Runtime.ImageFs.Time, n.Runtime.ContainerFs.Time, n.Rlimit.Time = at, at, at, at, at
	s.summary.Node.SystemContainers[0].Memory.Time = at
}

// contestants are both managers on the same node, ready for a round.
type contestants struct {
	scene *scene
	stock *stockManager
	ours  *ourManager
	now   time.Time
}

func newContestants(tb testing.TB, pods int, starved bool) *contestants {
	p, configured := benchmarkPlay(pods)
	theirs, err := stock.ParseThresholdConfig(configured.AllocatableEnforced, configured.Hard, nil, nil, nil)
	if err != nil {
		tb.Fatal(err)
	}
	thresholds, err := settings.ParseThresholds(configured)
	if err != nil {
		tb.Fatal(err)
	}
	c := &contestants{now: p.now, scene: benchmarkScene(p, starved)}
	c.stock = newStock(stock.Config{Thresholds: theirs, PressureTransitionPeriod: 5 * time.Minute}, false, false, true,
		p.now)
	tb.Cleanup(c.stock.stop)
	c.ours, err = newOurs(Config{Kubelet: settings.Kubelet{Thresholds: thresholds,
		PressureTransitionPeriod: 5 * time.Minute, LocalStorageCapacityIsolation: true}, Features: stockFeatures()},
		false, false, p.now)
	if err != nil {
		tb.Fatal(err)
	}
	c.stock.kills, c.ours.kills = func(*v1.Pod) {}, func(*v1.Pod) {}
	return c
}

func (c *contestants) turn() {
	c.now = c.now.Add(10 * time.Second)
	c.scene.stamp(c.now)
}

func (c *contestants) stockRound() { c.turn(); c.stock.step(c.scene, c.now) }
func (c *contestants) ourRound()   { c.turn(); c.ours.step(context.Background(), c.scene, c.now) }

func eachRound(f func(name string, pods int, starved bool)) {
	for _, pods := range []int{110, 500} {
		for _, starved := range []bool{false, true} {
			f(fmt.Sprintf("pods=%d/starved=%v", pods, starved), pods, starved)
		}
	}
}

// BenchmarkRound measures a round of observe (from a given summary) and decide, for stock and for ours.
func BenchmarkRound(b *testing.B) {
	eachRound(func(name string, pods int, starved bool) {
		b.Run("who=stock/"+name, func(b *testing.B) {
			c := newContestants(b, pods, starved)
			b.ReportAllocs()
			for b.Loop() {
				c.stockRound()
			}
		})
		b.Run("who=plimsoll/"+name, func(b *testing.B) {
			c := newContestants(b, pods, starved)
			b.ReportAllocs()
			for b.Loop() {
				c.ourRound()
			}
		})
	})
}

// ratioBlock is how many rounds one of both plays before it is the other's turn: few enough that whatever disturbs the
// machine disturbs both, and enough that neither works with the caches that the other has left behind.
const ratioBlock = 16

// BenchmarkRatio plays rounds of both in turn and tells how many times longer stock takes.
func BenchmarkRatio(b *testing.B) {
	eachRound(func(name string, pods int, starved bool) {
		b.Run(name, func(b *testing.B) {
			c := newContestants(b, pods, starved)
			var theirs, ours time.Duration
			for b.Loop() {
				begin := time.Now()
				for range ratioBlock {
					c.stockRound()
				}
				middle := time.Now()
				for range ratioBlock {
					c.ourRound()
				}
				theirs, ours = theirs+middle.Sub(begin), ours+time.Since(middle)
			}
			b.ReportMetric(float64(theirs)/float64(ours), "stock/ours")
			b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N*ratioBlock), "ours-ns/round")
			b.ReportMetric(float64(theirs.Nanoseconds())/float64(b.N*ratioBlock), "stock-ns/round")
		})
	})
}

// TestRoundAllocations holds the part of the target that does not depend on the machine: a quiet round allocates at
// most a tenth of what stock's does, an evicting one at most a twentieth.
func TestRoundAllocations(t *testing.T) {
	eachRound(func(name string, pods int, starved bool) {
		t.Run(name, func(t *testing.T) {
			c := newContestants(t, pods, starved)
			// What is kept from round to round is made in the first ones.
			for range 50 {
				c.ourRound()
			}
			theirs, ours := testing.AllocsPerRun(50, c.stockRound), testing.AllocsPerRun(50, c.ourRound)
			most := theirs / 10
			if starved {
				most = theirs / 20
			}
			t.Logf("stock %.0f, ours %.0f allocations", theirs, ours)
			if ours > most {
				t.Errorf("%.0f allocations, stock %.0f: more than %.0f", ours, theirs, most)
			}
		})
	})
}
