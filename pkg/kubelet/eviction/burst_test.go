package eviction

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// fencer is a sink that fences victims as a cgroup does: a victim with a fence does not grow any more.
type fencer struct {
	node *node
	mu   sync.Mutex
	list []fencedPod
}

type fencedPod struct {
	pod    string
	at     time.Time
	slack  snapshot.Bytes
	fenced bool
}

func (f *fencer) Name() string { return "fencer" }

func (f *fencer) Round(_ context.Context, r *Round) {
	for _, v := range r.Decision.Victims {
		one := fencedPod{pod: v.Pod.Name, at: time.Now(), fenced: v.Fence != nil}
		if v.Fence != nil {
			one.slack = v.Fence.Slack
			f.node.freeze(v.Pod.Name)
		}
		f.mu.Lock()
		f.list = append(f.list, one)
		f.mu.Unlock()
	}
}

func (f *fencer) Result(context.Context, *Result) {}

func (f *fencer) victims() []fencedPod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list)
}

// freeze ends the growth of a pod.
func (n *node) freeze(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pods[name]
	p.memory, p.growth = p.uses(), 0
}

// burst is a node with 100 MiB of headroom below its threshold and small pods, on which pods begin to grow.
type burst struct {
	*node
	kernel *kernel
	fencer *fencer
	config Config
}

func newBurst(t *testing.T, above, cached int64, hogs ...string) *burst {
	n := newNode()
	for i := range 20 {
		n.add(fmt.Sprintf("small-%02d", i), int64(10+3*i)*mi)
	}
	for _, name := range hogs {
		n.add(name, 5*mi)
	}
	n.add("cache", 20*mi, memoryRequest(gi)).cached = cached
	n.available(100*mi + above)
	b := &burst{node: n, kernel: &kernel{node: n}, fencer: &fencer{node: n}, config: n.config(t, hard("100Mi"))}
	b.config.Memory, b.config.Options = b.kernel, fencesOn()
	b.config.Sinks = append(b.config.Sinks, b.fencer)
	n.killTakes = 1500 * time.Millisecond
	return b
}

func fencesOn() *settings.Options {
	return new(optionsWith(func(o *settings.Options) { o.Fence = true }))
}

// expectFenced checks that exactly these pods are victims, each with a fence.
func (b *burst) expectFenced(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, v := range b.fencer.victims() {
		if got = append(got, v.pod); !v.fenced || v.slack < snapshot.Bytes(8*mi) {
			t.Errorf("victim %s: fence %t, slack %d", v.pod, v.fenced, v.slack)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("victims %v, want %v", got, want)
	}
}

// TestBurstFromRest: a pod that uses less than each of its neighbours begins to grow near the threshold. It is fenced
// within milliseconds of the crossing, and no other pod is evicted.
func TestBurstFromRest(t *testing.T) {
	for _, rate := range []int64{50, 100, 400, 1000, 2000} {
		for _, cached := range []int64{0, 12 * gi} {
			for _, above := range []int64{5 * mi, 300 * mi} {
				t.Run(fmt.Sprintf("%dMiB/s, page cache %dGi, %dMi above", rate, cached/gi, above/mi), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := newBurst(t, above, cached, "hog")
						run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
							wait(15 * time.Second)
							begin := time.Now()
							b.grows("hog", rate*mi)
							crossing := time.Duration(float64(above) / float64(rate*mi) * float64(time.Second))
							wait(crossing - time.Microsecond)
							b.expectFenced(t)
							wait(15 * time.Millisecond)
							b.expectFenced(t, "hog")
							if list := b.fencer.victims(); len(list) == 1 && list[0].at.Sub(begin) < crossing {
								t.Errorf("evicted %v before the crossing", crossing-list[0].at.Sub(begin))
							}
							wait(time.Minute)
							b.expectFenced(t, "hog")
						})
					})
				})
			}
		}
	}
}

// TestSecondHogBesideTheFirst: while the first one is being stopped, another pod begins to grow.
func TestSecondHogBesideTheFirst(t *testing.T) {
	for _, rate := range []int64{100, 400, 1000} {
		t.Run(fmt.Sprintf("%dMiB/s", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 50*mi, 0, "first", "second")
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(15 * time.Second)
					b.grows("first", rate*mi)
					wait(time.Duration(50*1000/rate)*time.Millisecond + 15*time.Millisecond)
					b.expectFenced(t, "first")
					wait(100 * time.Millisecond)
					b.grows("second", rate*mi)
					// Some looks, and less than a tenth of what is left.
					wait(time.Duration(7*1000/rate)*time.Millisecond + 25*time.Millisecond)
					b.expectFenced(t, "first", "second")
					wait(time.Minute)
					b.expectFenced(t, "first", "second")
				})
			})
		})
	}
}

// TestThreeHogs grow at 350 MiB/s each.
func TestThreeHogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hogs := []string{"hog-0", "hog-1", "hog-2"}
		b := newBurst(t, 100*mi, 0, hogs...)
		run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
			wait(15 * time.Second)
			for _, name := range hogs {
				b.grows(name, 350*mi)
			}
			wait(130 * time.Millisecond)
			b.expectFenced(t, hogs...)
			wait(time.Minute)
			b.expectFenced(t, hogs...)
		})
	})
}

// TestPageCacheIsNoGrowth: a pod reads files at 1 GiB/s beside a leak. Its counter grows by that, its memory does not.
func TestPageCacheIsNoGrowth(t *testing.T) {
	for _, rate := range []int64{50, 400} {
		t.Run(fmt.Sprintf("%dMiB/s", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, 100*mi, gi, "leak")
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(15 * time.Second)
					b.mu.Lock()
					b.pods["cache"].caching, b.pods["cache"].since = gi, time.Now()
					b.mu.Unlock()
					b.grows("leak", rate*mi)
					wait(time.Duration(100*1000/rate)*time.Millisecond + 15*time.Millisecond)
					b.expectFenced(t, "leak")
					wait(time.Minute)
					b.expectFenced(t, "leak")
				})
			})
		})
	}
}

// TestOnlyWhatHasChangedIsReadAtTheCrossing: reading all pods takes too long.
func TestOnlyWhatHasChangedIsReadAtTheCrossing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 300*mi, 0, "hog")
		run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
			wait(15 * time.Second)
			before := b.kernel.read()
			b.grows("hog", 400*mi)
			wait(765 * time.Millisecond)
			b.expectFenced(t, "hog")
			b.mu.Lock()
			partial := b.kernel.partial
			b.mu.Unlock()
			if got := b.kernel.read() - before; got > 0 || partial == 0 {
				t.Errorf("%d readings of all pods and %d of some", got, partial)
			}
		})
	})
}

// TestLingeringBelowTheThresholdCostsLittle: a hard threshold is met for long, and no pod can be evicted. Looks and
// readings take their share of the time, one fiftieth at most.
func TestLingeringBelowTheThresholdCostsLittle(t *testing.T) {
	const lasts = 6 * time.Minute
	for _, left := range []int64{10 * mi, 90 * mi, 900 * mi} {
		t.Run(fmt.Sprintf("%dMi left", left/mi), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.add("system", gi, func(pod *v1.Pod) {
					pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
				})
				n.available(left)
				k := &costly{kernel: kernel{node: n}}
				c := n.config(t, hard("1Gi"))
				c.Memory, c.Options = k, fencesOn()
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					wait(time.Minute)
					k.reset()
					wait(lasts)
					if looks, readings := k.spent(); looks+readings > lasts/50+lasts/500 {
						t.Errorf("%v of looks and %v of readings in %v", looks, readings, lasts)
					}
				})
			})
		})
	}
}

// costly is a kernel whose files take time to read.
type costly struct {
	kernel
	looks, full time.Duration
}

func (k *costly) take(d time.Duration, sum *time.Duration) {
	time.Sleep(d)
	k.mu.Lock()
	defer k.mu.Unlock()
	*sum += d
}

func (k *costly) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looks, k.full = 0, 0
}

func (k *costly) spent() (looks, readings time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.looks, k.full
}

func (k *costly) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	k.take(100*time.Microsecond, &k.looks)
	return k.kernel.Counters(how)
}

func (k *costly) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	k.take(2*time.Millisecond, &k.full)
	return k.kernel.ReadMemory(how)
}

func (k *costly) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	k.take(300*time.Microsecond, &k.looks)
	return k.kernel.PodUsages(into)
}

func (k *costly) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	if len(uids) == 0 {
		k.take(50*time.Microsecond, &k.looks)
		return k.kernel.ReadPods(how, uids)
	}
	k.take(2*time.Millisecond, &k.full)
	return k.kernel.ReadPods(how, uids)
}

// starved is a kernel that is read by a thread which waits for a CPU with each read, and hardly uses it.
type starved struct {
	kernel
	anyThread
	used time.Duration
}

// ThreadTime implements ThreadClock.
func (k *starved) ThreadTime() time.Duration { return k.used }

func (k *starved) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	time.Sleep(100 * time.Millisecond)
	k.used += 50 * time.Microsecond
	return k.kernel.Counters(how)
}

// TestABusyNodeIsNotBlind: where each read takes 100 ms because others use the CPUs, the next read does not wait fifty
// times as long, and a crossing is not passed over because too much was read.
func TestABusyNodeIsNotBlind(t *testing.T) {
	for _, fence := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, 200*mi, 0, "hog")
			b.config.Options = new(optionsWith(func(o *settings.Options) { o.Fence = fence }))
			b.config.Memory = &starved{kernel: kernel{node: b.node}}
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(15 * time.Second)
				b.grows("hog", 50*mi)
				wait(4 * time.Second)
				if got := b.fencer.victims(); len(got) != 0 {
					t.Errorf("victims before the crossing: %v", got)
				}
				wait(time.Second)
				if got := b.fencer.victims(); len(got) != 1 || got[0].pod != "hog" {
					t.Errorf("fences %t: victims %v a second after the crossing, want the hog", fence, got)
				}
			})
		})
	}
}

// restless is a costly kernel of a node on which processes outside of pods use memory and free it, so that pods do not
// explain its growth.
type restless struct {
	costly
	reads int64
}

func (k *restless) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	c, err := k.costly.Counters(how)
	k.reads++
	c.Node += snapshot.Bytes(k.reads % 2 * 3 * mi / 2)
	return c, err
}

// TestASlowApproachIsNotPassedOver: a pod that grows slowly takes seconds through the range in which the kernel may be
// reclaiming pages. What is read there must not use up what the crossing needs.
func TestASlowApproachIsNotPassedOver(t *testing.T) {
	for _, rate := range []int64{5, 20, 50} {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, 80*mi, 0, "hog")
			b.add("big", b.capacity-2*gi, memoryRequest(b.capacity))
			b.available(180 * mi)
			b.config.Memory = &restless{costly: costly{kernel: kernel{node: b.node}}}
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(15 * time.Second)
				b.grows("hog", rate*mi)
				wait(time.Duration(80*1000/rate) * time.Millisecond)
				if got := b.fencer.victims(); len(got) != 0 {
					t.Errorf("victims before the crossing: %v", got)
				}
				wait(50 * time.Millisecond)
				if got := b.fencer.victims(); len(got) != 1 || got[0].pod != "hog" {
					t.Errorf("%d MiB/s: victims %v 50 ms after the crossing, want the hog", rate, got)
				}
			})
		})
	}
}

// limited is a kernel with a limit on the memory of all pods together.
type limited struct {
	kernel
	limit int64
}

// within returns a reading as it is with a limit on the memory of all pods together.
func (n *node) within(limit int64, r snapshot.MemoryReading) snapshot.MemoryReading {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.Pods.Available, r.Pods.Capacity = limit-n.used(), limit
	return r
}

func (k *limited) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	return k.within(k.limit, k.kernel.ReadMemory(how))
}

func (k *limited) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	return k.within(k.limit, k.kernel.ReadPods(how, uids))
}

// TestMemoryThatTheSystemFreesIsNotThatOfPods: all pods together use up their limit, while a process outside of pods
// frees more than they use. The growth of the node says nothing about what they have left.
func TestMemoryThatTheSystemFreesIsNotThatOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, above = 100, 200
		b := newBurst(t, 8*gi, 0, "hog")
		k := &limited{kernel: kernel{node: b.node}, limit: b.used() + (100+above)*mi}
		b.config.Memory = k
		var err error
		b.config.Thresholds, err = settings.ParseThresholds(settings.ThresholdConfig{
			AllocatableEnforced: []string{"pods"}, Hard: map[string]string{"memory.available": "100Mi"},
		})
		if err != nil {
			t.Fatal(err)
		}
		run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
			wait(15 * time.Second)
			b.grows("hog", rate*mi)
			for range 10 * above {
				b.mu.Lock()
				b.system -= rate * mi / 500
				b.mu.Unlock()
				wait(time.Second / rate / 10)
			}
			wait(15 * time.Millisecond)
			b.expectFenced(t, "hog")
		})
	})
}
