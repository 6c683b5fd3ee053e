package eviction

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// growthStopper is a Fencer that ends the growth of a pod, as a fence does, and does not kill it.
type growthStopper struct {
	n  *node
	mu sync.Mutex
	// fenced are the names of the pods.
	fenced []string
}

func (s *growthStopper) Prepare(*v1.Pod) {}

func (s *growthStopper) Fence(pod *v1.Pod, _ policy.Fence) (Fence, error) {
	s.n.freeze(pod.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenced = append(s.fenced, pod.Name)
	return steadyFence{}, nil
}

func (s *growthStopper) Kill(ctx context.Context, _ *v1.Pod) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s *growthStopper) hasFenced(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.fenced, name)
}

// steadyFence is a fence that stays as it is.
type steadyFence struct{}

func (steadyFence) At() int64                  { return 300 * mi }
func (steadyFence) Check() (FenceState, error) { return FenceState{}, nil }
func (steadyFence) Set() error                 { return nil }
func (steadyFence) OOMKilled() bool            { return false }
func (steadyFence) Restore() error             { return nil }

// newStoppedBurst returns a burst with a growthStopper. A kill takes so long.
func newStoppedBurst(t *testing.T, b *burst, killTakes time.Duration) *growthStopper {
	t.Helper()
	s := &growthStopper{n: b.node}
	b.config.Fencer, b.config.Memory, b.killTakes = s, b.pricedKernel(), killTakes
	return s
}

// A large idle pod is being evicted without a fence, and will release enough. Another pod grows slowly all the time,
// and then fast. Its rate is not the mean of the last second: it is fenced before two thirds of what is left are used.
func TestSlowPodThatBecomesAHogBesideAnEviction(t *testing.T) {
	for _, slow := range []int64{0, 1, 3, 8} {
		for _, fast := range []int64{200, 400, 1000, 1300, 1600, 2000} {
			var used []int64
			late := inPhases(t, 12, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
				percent := usedBeforeTheFence(t, rest, slow, fast, 0)
				used = append(used, percent)
				return percent < 67
			})
			if late > 0 {
				t.Errorf("%d, then %d MiB/s: %d of 12 are late: %d %% are used", slow, fast, late, used)
			}
		}
	}
}

// As before, with a pod whose counter goes up and down until it becomes a hog: other pods take what a CPU has charged
// in advance for it.
func TestFluctuatingPodThatBecomesAHogBesideAnEviction(t *testing.T) {
	for _, slow := range []int64{0, 3} {
		for _, fast := range []int64{200, 400, 1000} {
			var used []int64
			late := inPhases(t, 8, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
				percent := usedBeforeTheFence(t, rest, slow, fast, 768<<10)
				used = append(used, percent)
				return percent < 67
			})
			if late > 0 {
				t.Errorf("%d, then %d MiB/s: %d of 8 are late: %d %% are used", slow, fast, late, used)
			}
		}
	}
}

// usedBeforeTheFence returns how much of what is left a pod uses, in percent, that grows by so many MiB per second and
// then fast, while a large one is being evicted. Its counter goes up and down by so many bytes before.
func usedBeforeTheFence(t *testing.T, rest time.Duration, slow, fast, swing int64) (percent int64) {
	t.Helper()
	b := newBurst(t, 50*mi, 0, "second")
	b.capacity = 128 * gi
	s := newStoppedBurst(t, b, 20*time.Second)
	b.add("big", 4*gi)
	b.available(150*mi + 2*slow*mi)
	run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
		wait(rest)
		b.grows("second", slow*mi)
		b.fluctuates(wait, "second", swing, 2*time.Second)
		b.available(80 * mi) // A process outside of pods uses memory, and the threshold is met.
		b.fluctuates(wait, "second", swing, 300*time.Millisecond)
		left := b.left()
		b.freeze("second")
		b.grows("second", fast*mi)
		for b.left() > 0 && !s.hasFenced("second") {
			wait(time.Millisecond / 2)
		}
		if percent = 100; s.hasFenced("second") {
			percent -= 100 * b.left() / left
		}
	})
	return percent
}

// fluctuates has a pod use so much more for every other seven milliseconds, for so long.
func (b *burst) fluctuates(wait func(time.Duration), name string, swing int64, lasts time.Duration) {
	if swing == 0 {
		wait(lasts)
		return
	}
	for end := time.Now().Add(lasts); time.Now().Before(end); swing = -swing {
		b.mu.Lock()
		b.pods[name].memory += swing
		b.mu.Unlock()
		wait(7 * time.Millisecond)
	}
}

// A pod grows by 20 MiB/s, which does not use up the 100 MiB of the threshold within the time of a kill. Another one
// that grew slowly grows fast, and crosses the threshold: it is the only victim, as one that grows from rest.
func TestSteadyPodBesideOneThatGrowsFaster(t *testing.T) {
	for _, slow := range []int64{0, 3, 6, 10} {
		for _, fast := range []int64{100, 200, 400} {
			for _, above := range []int64{1, 2, 4} {
				var victims []string
				wrong := inPhases(t, 8, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
					b := newBurst(t, mi, 0, "hog", "steady")
					s := newStoppedBurst(t, b, 1500*time.Millisecond)
					b.available(100*mi + above*mi + 2*(slow+20)*mi)
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(rest)
						b.grows("steady", 20*mi)
						b.grows("hog", slow*mi)
						wait(2 * time.Second)
						b.freeze("hog")
						b.grows("hog", fast*mi)
						for b.left() > 0 && !s.hasFenced("hog") {
							wait(time.Millisecond / 2)
						}
						wait(time.Second)
						victims = append(victims, podsOf(b.fencer.victims()))
					})
					return victims[len(victims)-1] == "hog"
				})
				if wrong > 0 {
					t.Errorf("%d, then %d MiB/s, %d MiB above the threshold: %d of 8 are wrong: %q", slow, fast, above, wrong,
						victims)
				}
			}
		}
	}
}

// A hog is fenced, and has ended 1.5 s later. Meanwhile a second one has grown for half a second. What the first has
// released is about what is missing. The second is the victim then, since nothing else grows, and not a large pod at
// rest: what the first released does not make the growth of the second count for less.
func TestSecondHogWhenTheFirstHasEnded(t *testing.T) {
	for _, limited := range []bool{false, true} {
		for _, rate := range []int64{60, 150, 300} {
			for _, above := range []int64{-10, -1, 1, 3, 8} {
				if limited && rate == 60 {
					continue // The pod that uses memory in the meantime makes the large one a victim before.
				}
				var victims []string
				wrong := inPhases(t, 4, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
					b := newBurst(t, 60*mi, 0, "hog", "second")
					b.capacity = 128 * gi
					s := newStoppedBurst(t, b, 1500*time.Millisecond)
					b.add("big", 4*gi)
					available := b.hogEnds(t, limited)
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(rest)
						b.grows("hog", gi)
						for n := 0; n < 4000 && !s.hasFenced("hog"); n++ {
							wait(time.Millisecond / 2)
						}
						used := b.usedBy("hog")
						wait(200 * time.Millisecond)
						available(gi + above*mi + rate*mi/2 - used)
						wait(800 * time.Millisecond)
						b.grows("second", rate*mi)
						for n := 0; n < 1200 && !strings.Contains(podsOf(b.fencer.victims()), "second"); n++ {
							wait(time.Millisecond)
						}
						victims = append(victims, podsOf(b.fencer.victims()))
					})
					return !strings.Contains(victims[len(victims)-1], "big")
				})
				if wrong > 0 {
					t.Errorf("limited %t, %d MiB/s, %d MiB above the threshold: %d of 4 are wrong: %q", limited, rate, above,
						wrong, victims)
				}
			}
		}
	}
}

// hogEnds prepares a node with a threshold of 1 GiB, of the node or, if limited, of all pods together, and 300 MiB more
// available. It returns what sets how much is available.
func (b *burst) hogEnds(t *testing.T, limited bool) (available func(int64)) {
	t.Helper()
	config := settings.ThresholdConfig{Hard: map[string]string{"memory.available": "1Gi"}}
	b.available(gi + 300*mi)
	available = b.available
	if limited {
		config.AllocatableEnforced = []string{"pods"}
		b.available(64 * gi)
		k := &limitedPriced{priced: *b.pricedKernel(), limit: b.used() + gi + 300*mi + gi}
		b.add("rest", gi, memoryRequest(16*gi))
		b.config.Memory = k
		available = func(left int64) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.pods["rest"].memory += k.limit - b.used() - left
		}
	}
	b.config.Thresholds = b.node.config(t, config).Thresholds
	return available
}

// usedBy returns what a pod uses.
func (b *burst) usedBy(name string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pods[name].uses()
}

// A pod was evicted for a soft threshold, with little grace, and its runtime is slow. If it grows through the hard one
// it is fenced, as a victim of that.
func TestVictimOfASoftThresholdThatBeginsToGrow(t *testing.T) {
	for _, rate := range []int64{50, 400} {
		t.Run(fmt.Sprintf("%d MiB per second", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, mi, 0, "small")
				b.capacity = 128 * gi
				b.add("big", 4*gi)
				s := newStoppedBurst(t, b, 20*time.Second)
				b.config.MaxPodGracePeriodSeconds = 2
				b.config.Thresholds = b.node.config(t, settings.ThresholdConfig{
					Hard: map[string]string{"memory.available": "100Mi"}, Soft: map[string]string{"memory.available": "300Mi"},
					SoftGracePeriods: map[string]string{"memory.available": "1s"},
				}).Thresholds
				b.available(400 * mi)
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(12 * time.Second)
					b.available(250 * mi)
					wait(3 * time.Second)
					expect(t, "victims of the soft threshold", podsOf(b.fencer.victims()), "big")
					b.grows("big", rate*mi)
					for b.left() > 100*mi {
						if s.hasFenced("big") {
							t.Fatal("fenced before the hard threshold is met")
						}
						wait(time.Millisecond)
					}
					for b.left() > 50*mi && !s.hasFenced("big") {
						wait(time.Millisecond)
					}
					if !s.hasFenced("big") {
						t.Error("half of what was left is used up, and the pod has no fence")
					}
				})
			})
		})
	}
}
