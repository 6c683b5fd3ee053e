//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// growthConfig enables the eviction plugin memory-growth. The time is the monitoring period.
	growthConfig = `apiVersion: nodepressure.plimsoll.dev/v1alpha1
kind: NodePressureConfiguration
monitoringPeriod: %s
plugins:
  eviction:
    inTree: [memory-growth]
    settings:
      memory-growth:
        horizon: 2m
`
	// growthRate is how fast the pod leaks, in MiB per second, growthHeadroom how much memory is left above the threshold
	// when it begins, in MiB. The leak would meet the threshold after 100 s.
	growthRate, growthHeadroom = 5, 500
	// growthMargin is how much more than the threshold must be available when the pod is evicted, in MiB.
	growthMargin = 20
	// growthTime is the longest time until the eviction, less than that until the threshold is met.
	growthTime = (growthHeadroom - growthMargin) / growthRate * time.Second
)

// TestMemoryGrowthEvictsALeakBeforeTheThreshold runs a pod that leaks 5 MiB per second, and after that pods whose usage
// does not grow although little more than the threshold is available. With the plugin memory-growth the leaking pod is
// evicted before memory meets the threshold, and no other is. PLIMSOLL_GROWTH_ROUNDS repeats both.
func TestMemoryGrowthEvictsALeakBeforeTheThreshold(t *testing.T) {
	rounds := 1
	if text := os.Getenv("PLIMSOLL_GROWTH_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("PLIMSOLL_GROWTH_ROUNDS is %q, want a number from 1 on", text)
		}
		rounds = n
	}
	s := spaceForRestart(t)
	s.noOtherPods()
	// Soak has the default. Usage that has grown for 20 s is growth, which the kubelet confirms with the next round.
	period := inSoak(10*time.Second, 2*time.Second)
	s.withPressureConfig(fmt.Sprintf(growthConfig, period), shortTransition)
	idle := s.ready(kit.Bound(requestingMore(holding("idle", neighbourUse))))
	above := s.ready(kit.Bound(holding("above", 2*neighbourUse)))
	before := s.fingerprint()
	for round := range rounds {
		t.Run(fmt.Sprintf("leak %d", round+1), func(t *testing.T) { s.in(t).leakBeforeThreshold(before) })
		t.Run(fmt.Sprintf("steady %d", round+1), func(t *testing.T) { s.in(t).steadyPods() })
	}
	s.remove(idle)
	s.remove(above)
}

// in returns the space for a subtest or a part of a benchmark.
func (s *space) in(t testing.TB) *space {
	sub := *s
	sub.t, sub.ctx = t, t.Context()
	return &sub
}

// growthRoom returns how much memory, in MiB, a pod may use so that growthHeadroom is left above the threshold, which
// is a quarter of the pods' memory.
func (s *space) growthRoom(headroom int64) int64 {
	s.t.Helper()
	used, err := node.PodMemoryUsed()
	s.must(err)
	return (node.PodMemory()*3/4-used)/mebibyte - headroom
}

// leakBeforeThreshold runs a leaking pod until it is evicted.
func (s *space) leakBeforeThreshold(before map[string]string) {
	s.t.Helper()
	leak := kit.HogPod("leak", fmt.Sprintf("--start=%d", s.growthRoom(growthHeadroom)),
		fmt.Sprintf("--rate=%d", growthRate), fmt.Sprintf("--limit=%d", 2*node.PodMemory()/mebibyte))
	leak.Spec.Containers[0].Resources.Requests = kit.Mebibytes(64)
	leak = s.ready(kit.Bound(leak))
	began, most := time.Now(), int64(0)
	s.eventually(growthTime, func(ctx context.Context) error {
		used, err := node.PodMemoryUsed()
		if err != nil {
			return err
		}
		most = max(most, used)
		running, err := s.alive(ctx, leak.Name)
		if err == nil && len(running) > 0 {
			err = errors.New("the leaking pod was not evicted")
		}
		return err
	})
	left := (node.PodMemory()*3/4 - most) / mebibyte
	s.t.Logf("evicted after %v, with %d MiB left above the threshold", time.Since(began), left)
	if left < growthMargin {
		s.t.Errorf("only %d MiB were left above the threshold", left)
	}
	s.eventually(podTimeout, func(ctx context.Context) error {
		return s.hasEvent(ctx, leak.Name, "Evicted", "memory usage grows by ")
	})
	s.eventually(podTimeout, func(context.Context) error { return s.onlyEvicted(leak.Name) })
	s.must(errors.Join(kit.MemoryPressure(s.ctx, s.client, false), s.sameAs(before)))
	s.must(kit.WaitGone(s.ctx, s.client, leak, podTimeout))
}

// steadyPods runs pods above their requests whose usage does not grow: one that takes its memory at its start, and one
// that fills its memory for ten seconds.
func (s *space) steadyPods() {
	s.t.Helper()
	burst := s.ready(kit.Bound(holding("burst", s.growthRoom(growthHeadroom))))
	filling := kit.HogPod("filling", "--start=1", "--rate=10", "--limit=100")
	filling.Spec.Containers[0].Resources.Requests = kit.Mebibytes(1)
	filling = s.ready(kit.Bound(filling))
	running := s.fingerprint()
	// Longer than it takes until usage counts as growth: 20 s and two rounds.
	s.stays(inSoak(45*time.Second, 30*time.Second), func() error { return s.sameAs(running) })
	s.must(s.onlyEvicted("leak"))
	s.remove(burst)
	s.remove(filling)
}
