package eviction

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stock "k8s.io/kubernetes/pkg/kubelet/eviction"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// benchmarkPlay is a node with the default thresholds of stock and a number of pods.
func benchmarkPlay(pods int) (*play, ThresholdConfig) {
	p := newPlay(1)
	p.odd, p.dedicated, p.split, p.pods = false, false, false, nil
	for i := range pods {
		p.addPod(i)
	}
	settings := ThresholdConfig{AllocatableEnforced: []string{"pods"}, Hard: map[string]string{
		"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
	}}
	for _, sig := range snapshot.AllSignals() {
		p.levels[sig] = &level{capacity: 100 * gi, available: 50 * gi}
	}
	return p, settings
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

// BenchmarkRound measures a round of observe (from a given summary) and decide, for stock and for ours.
func BenchmarkRound(b *testing.B) {
	for _, pods := range []int{110, 500} {
		for _, starved := range []bool{false, true} {
			name := fmt.Sprintf("pods=%d/starved=%v", pods, starved)
			b.Run("who=stock/"+name, func(b *testing.B) { benchmarkStock(b, pods, starved) })
			b.Run("who=plimsoll/"+name, func(b *testing.B) { benchmarkOurs(b, pods, starved) })
		}
	}
}

func benchmarkStock(b *testing.B, pods int, starved bool) {
	p, settings := benchmarkPlay(pods)
	thresholds, err := stock.ParseThresholdConfig(settings.AllocatableEnforced, settings.Hard, nil, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	m := newStock(stock.Config{Thresholds: thresholds, PressureTransitionPeriod: 5 * time.Minute}, false, false, true, p.now)
	defer m.stop()
	m.kills = func(*v1.Pod) {}
	sc, now := benchmarkScene(p, starved), p.now
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(10 * time.Second)
		sc.stamp(now)
		m.step(sc, now)
	}
}

func benchmarkOurs(b *testing.B, pods int, starved bool) {
	p, settings := benchmarkPlay(pods)
	thresholds, err := ParseThresholds(settings)
	if err != nil {
		b.Fatal(err)
	}
	m, err := newOurs(Config{Thresholds: thresholds, PressureTransitionPeriod: 5 * time.Minute, LocalStorageCapacityIsolation: true}, false, false, p.now)
	if err != nil {
		b.Fatal(err)
	}
	m.kills = func(*v1.Pod) {}
	sc, now := benchmarkScene(p, starved), p.now
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(10 * time.Second)
		sc.stamp(now)
		m.step(context.Background(), sc, now)
	}
}
