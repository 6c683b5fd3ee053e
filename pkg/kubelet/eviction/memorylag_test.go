package eviction

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// noisy is a kernel whose counters of pods at rest, "rest-0" and so on, vary: more returns what such a pod seems to use
// more than it does. On cgroup v1 (inNode) the counter of the node has that too.
type noisy struct {
	priced
	cpus, pods int
	more       func(pod int) snapshot.Bytes
	inNode     bool
}

func (k *noisy) CPUs() int { return k.cpus }

// of is what a pod seems to use more than it does.
func (k *noisy) of(uid types.UID) snapshot.Bytes {
	pod := 0
	if _, err := fmt.Sscanf(string(uid), "rest-%d", &pod); err != nil {
		return 0
	}
	return k.more(pod)
}

func (k *noisy) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	c, err := k.priced.Counters(how)
	for pod := range k.pods {
		c.Pods += k.more(pod)
		if k.inNode {
			c.Node += k.more(pod)
		}
	}
	return c, err
}

func (k *noisy) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	list := k.priced.PodUsages(into)
	for i := range list {
		list[i].Usage += k.of(list[i].UID)
	}
	return list
}

func (k *noisy) ReadPod(how snapshot.Counting, uid types.UID) (snapshot.PodMemory, error) {
	r, err := k.priced.ReadPod(how, uid)
	r.Resident += k.of(uid)
	return r, err
}

// waking returns what a pod seems to use more that wakes up now and then, for a moment: each of some CPUs charges 64
// pages for it, one after the other within some milliseconds.
func waking(pod, cpus int, every time.Duration) snapshot.Bytes {
	const lasts, apart = 60 * time.Millisecond, 2 * time.Millisecond
	at := time.Duration(time.Now().Add(time.Duration(pod)*47003*time.Microsecond).UnixNano() % int64(every))
	if at >= lasts {
		return 0
	}
	return snapshot.Bytes(min(int64(at/apart)+1, int64(cpus)) * 256 << 10)
}

// A pod grows to the threshold beside pods at rest whose counters vary by 64 pages on each of some CPUs. That one is
// the victim, and no pod at rest. In two of twenty phases another one may be: counters do not show the difference at
// once.
func TestPodsAtRestOnSeveralCPUs(t *testing.T) {
	for _, test := range []struct {
		cpus int
		each time.Duration
	}{
		{4, 300 * time.Millisecond}, {5, 300 * time.Millisecond}, {8, 300 * time.Millisecond}, {8, time.Second},
		{16, time.Second},
	} {
		for _, rate := range []int64{20, 60, 200} {
			for _, inNode := range []bool{false, true} {
				var victims []string
				wrong := inPhases(t, 20, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
					const pods = 15
					names := []string{"hog"}
					for i := range pods {
						names = append(names, fmt.Sprintf("rest-%d", i))
					}
					b := newBurst(t, mi, 0, names...)
					b.config.Memory = &noisy{
						priced: *b.pricedKernel(), cpus: test.cpus, pods: pods, inNode: inNode,
						more: func(pod int) snapshot.Bytes { return waking(pod, test.cpus, test.each) },
					}
					b.killTakes = time.Hour
					b.available(100*mi + 2*rate*mi)
					run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
						wait(rest)
						b.grows("hog", rate*mi)
						wait(2700 * time.Millisecond)
						got := b.fencer.victims()
						if right = len(got) == 1 && got[0].pod == "hog"; !right {
							victims = append(victims, podsOf(got))
						}
					})
					return right
				})
				if wrong > 2 {
					t.Errorf("%d CPUs, each %v, %d MiB/s, in the counter of the node %t: %d of 20 phases have other victims: %q",
						test.cpus, test.each, rate, inNode, wrong, victims)
				}
			}
		}
	}
}

// manyCPUs is a kernel with so many CPUs that counters may lag by 16 MiB.
type manyCPUs struct{ priced }

func (*manyCPUs) CPUs() int { return 64 }

// There a pod grows slowly towards the threshold, and another one begins to grow fast just before that is met. The fast
// one is the victim, although it has grown by less than counters may lag.
func TestHogBeginsBesideASlowPodOnManyCPUs(t *testing.T) {
	for _, test := range []struct{ slow, fast, above int64 }{
		{9, 100, 1}, {9, 400, 1}, {18, 200, 1}, {18, 400, 5}, {28, 400, 2}, {5, 1000, 3},
	} {
		wrong := inPhases(t, 12, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, mi, 0, "hog", "decoy")
			b.config.Memory, b.killTakes = &manyCPUs{*b.pricedKernel()}, time.Hour
			b.available(100*mi + test.above*mi + 2*test.slow*mi)
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(rest)
				b.grows("decoy", test.slow*mi)
				wait(2 * time.Second)
				b.grows("hog", test.fast*mi)
				wait(time.Duration((60 + test.above) * int64(time.Second) / test.fast))
				right = b.onlyFenced("hog")
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("%d and %d MiB/s, %d MiB above: in %d of 12 phases the victims are wrong", test.slow, test.fast, test.above,
				wrong)
		}
	}
}

// Two pods use up memory. The second one has begun just before the crossing, and has grown by less than counters may
// lag, so that the first decision may leave it out. It is found before it has used up a third of what is left.
func TestSecondHogThatMayBeAtRestAtTheCrossing(t *testing.T) {
	for _, test := range []struct {
		cpus          int
		first, second int64
		before        time.Duration
	}{{4, 200, 300, 10}, {16, 200, 300, 10}, {32, 200, 300, 20}, {64, 200, 200, 60}, {64, 400, 400, 30}} {
		inPhases(t, 12, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
			b := newBurst(t, mi, 0, "first", "second")
			b.config.Memory, b.killTakes = &noisy{priced: *b.pricedKernel(), cpus: test.cpus}, time.Hour
			before := test.before * time.Millisecond
			b.available(100*mi + test.first*mi + int64(float64(test.second*mi)*before.Seconds()))
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(rest)
				b.grows("first", test.first*mi)
				wait(time.Second - before)
				b.grows("second", test.second*mi)
				left := b.left()
				for len(b.fencer.victims()) < 2 && b.left() > left/2 {
					if wait(time.Millisecond / 4); len(b.fencer.victims()) == 0 {
						left = b.left()
					}
				}
				if percent := 100 - 100*b.left()/left; percent > 33 || len(b.fencer.victims()) != 2 {
					t.Errorf("%d CPUs, %d and %d MiB/s: victims %s, %d %% of what was left is used up", test.cpus, test.first,
						test.second, podsOf(b.fencer.victims()), percent)
				}
			})
			return true
		})
	}
}
