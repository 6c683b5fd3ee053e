package eviction

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// For minutes the node has hardly more left than its hard threshold, and the counters show a crossing again and again
// that costly readings refute, until the credit is used up. Then a pod grows fast: the decision comes before all 102
// MiB are used up.
func TestFastBurstAfterFalseAlarms(t *testing.T) {
	for _, rate := range []int64{100, 400, 1000} {
		late := inPhases(t, 8, 2417*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, 2*mi, 0, "hog")
			k := &off{*b.pricedKernel()}
			k.busy = true
			k.full = 30 * time.Millisecond
			b.config.Memory = k
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(100*time.Second + rest)
				b.grows("hog", rate*mi)
				wait(102 * time.Second / time.Duration(rate))
				right = len(b.fencer.victims()) > 0
			})
			return right
		})
		if late > 0 {
			t.Errorf("%d MiB/s: in %d of 8 scenes all memory is used up before a decision", rate, late)
		}
	}
}

// A hard threshold is met for a minute while little changes, and reads of the counters are cheap, so that waking up for
// them costs more. The end of pressure is seen soon all the same, and so is another pod that uses up the rest.
func TestThresholdThatIsMetForLong(t *testing.T) {
	for _, cost := range []time.Duration{50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond} {
		for _, left := range []int64{20, 60} {
			for _, second := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					metForLong(t, cost, left, second)
				})
			}
		}
	}
}

func metForLong(t *testing.T, cost time.Duration, left int64, second bool) {
	t.Helper()
	b := newBurst(t, 50*mi, 0, "first", "second")
	k := b.pricedKernel()
	k.counters = cost
	b.config.Memory = k
	b.killTakes = time.Hour
	b.config.Options.MonitoringPeriod = 5 * time.Minute
	run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
		wait(12 * time.Second)
		b.grows("first", 50*mi)
		wait(1100 * time.Millisecond)
		b.freeze("first")
		b.available(left * mi)
		wait(time.Minute)
		owed, victims := m.loop.watcher.Owed(), len(b.fencer.victims())
		if victims == 0 {
			t.Error("the pod that has grown is no victim")
		}
		if second {
			b.grows("second", 100*mi)
			wait(time.Duration(left) * time.Second / 100)
			if len(b.fencer.victims()) == victims {
				t.Errorf("reads of %v, %d MiB left, %v owed: the second pod uses up all before a decision", cost, left, owed)
			}
			return
		}
		b.available(5 * gi)
		wait(time.Second)
		if m.last.Load().Decision.Condition(v1.NodeMemoryPressure).HardMet {
			t.Errorf("reads of %v, %d MiB left, %v owed: the end of pressure is not seen in a second", cost, left, owed)
		}
	})
}

// A pod begins to grow slowly just above the threshold, so that the decision about it is postponed, which costs much
// where looks and readings do. Then a second one grows fast: it is found before it has used up what is left.
func TestSecondHogAfterAPostponedDecision(t *testing.T) {
	for _, rate := range []int64{8, 15} {
		for _, after := range []time.Duration{20, 300, 1000} {
			late := inPhases(t, 6, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
				b := newBurst(t, mi/4, 0, "first", "second")
				k := b.pricedKernel()
				k.busy = true
				k.usages, k.full = 2*time.Millisecond, 40*time.Millisecond
				b.config.Memory = k
				b.killTakes = 20 * time.Second
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(3*time.Second + rest)
					b.grows("first", rate*mi)
					for range 500 {
						if wait(time.Millisecond); len(b.fencer.victims()) > 0 {
							break
						}
					}
					b.freeze("first")
					wait(after * time.Millisecond)
					left := b.capacity - b.system - b.used()
					b.grows("second", 200*mi)
					wait(time.Duration(float64(left) / float64(200*mi) * float64(time.Second)))
					got := b.fencer.victims()
					right = len(got) == 2 && got[0].pod == "first" && got[1].pod == "second"
				})
				return right
			})
			if late > 0 {
				t.Errorf("first pod %d MiB/s, second one %v later: %d of 6 decisions are late", rate, after*time.Millisecond, late)
			}
		}
	}
}

// switched is a kernel whose counters show 3 MiB less than a reading while that is on.
type switched struct {
	priced
	on bool
}

func (k *switched) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	c, err := k.priced.Counters(how)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.on {
		c.Node += snapshot.Bytes(3 * mi)
	}
	return c, err
}

func (k *switched) set(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.on = on
}

// Some time after a false alarm options change just before a threshold is crossed, which drops what was observed. The
// decision waits until it is known who grows, as without a false alarm.
func TestOptionsChangeAfterAFalseAlarm(t *testing.T) {
	for _, alarm := range []bool{false, true} {
		wrong := inPhases(t, 40, 250*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, 2*mi, 0, "hog", "decoy")
			k := &switched{priced: *b.pricedKernel()}
			b.config.Memory = k
			run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
				wait(20 * time.Second)
				k.set(alarm)
				wait(2 * time.Second)
				k.set(false)
				b.available(300 * mi)
				wait(20 * time.Second)
				b.available((100 + 20 + 60) * mi)
				b.grows("decoy", 60*mi)
				wait(time.Second)
				b.freeze("decoy")
				wait(1500 * time.Millisecond)
				b.grows("hog", 100*mi)
				wait(195*time.Millisecond + rest%time.Second) // The threshold is met after 200 ms.
				o := *fencesOn()
				o.MonitoringPeriod = 11 * time.Second
				m.SetOptions(o)
				wait(150 * time.Millisecond)
				got := b.fencer.victims()
				right = len(got) > 0 && got[0].pod == "hog"
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("false alarm before: %t: %d of 40 decisions are wrong", alarm, wrong)
		}
	}
}

// whileRead is a kernel that calls a function, in the loop, at the end of each read of the counters.
type whileRead struct {
	priced
	then func()
}

func (k *whileRead) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	c, err := k.priced.Counters(how)
	if k.then != nil {
		k.then()
	}
	return c, err
}

// Options are set after a collection has ended and before its round: no round uses the former ones.
func TestOptionsSetBetweenACollectionAndItsRound(t *testing.T) {
	reached := 0
	wrong := inPhases(t, 60, 41*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
		b := newBurst(t, 50*mi, 0, "hog")
		b.pods["hog"].disk = 10 * gi
		k := &whileRead{priced: *b.pricedKernel()}
		k.counters = 30 * time.Millisecond
		b.config.Memory = k
		b.config.Thresholds = b.node.config(t, settings.ThresholdConfig{
			Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "5Gi"},
		}).Thresholds
		b.config.Collector = b.collector(t, &paced{node: b.node, takes: 3 * time.Second})
		reclaims := func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.reclaimed) > 0
		}
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(2*time.Second + rest)
			set := false
			b.mu.Lock()
			b.disk.used = b.disk.capacity - gi
			k.then = func() {
				if !set && len(m.loop.collected) == 1 && !reclaims() {
					set = true
					m.SetOptions(optionsWith(func(o *settings.Options) {
						o.Fence, o.DryRun = true, []policy.ThresholdID{{Signal: snapshot.NodeFsAvailable}}
					}))
				}
			}
			b.mu.Unlock()
			m.Wake()
			wait(2990 * time.Millisecond)
			m.Nudge() // The collection ends during this read.
			wait(20 * time.Second)
			if set {
				reached++
			}
			right = !set || !reclaims()
		})
		return right
	})
	if wrong > 0 || reached == 0 {
		t.Errorf("in %d of %d scenes images are deleted for a threshold that is in dry run", wrong, reached)
	}
}

// costlyPods is a costly kernel where reading one pod takes a third of a millisecond.
type costlyPods struct{ costly }

func (k *costlyPods) ReadPod(how snapshot.Counting, uid types.UID) (snapshot.PodMemory, error) {
	k.take(300*time.Microsecond, &k.looks)
	return k.kernel.ReadPod(how, uid)
}

// TestFlappingPodsBelowTheThresholdCostLittle: as TestLingeringBelowTheThresholdCostsLittle, with pods that allocate or
// free some MiB all the time, so that others begin to grow with each look.
func TestFlappingPodsBelowTheThresholdCostLittle(t *testing.T) {
	for _, left := range []int64{20 * mi, 90 * mi, 300 * mi} {
		for _, pods := range []int{6, 30} {
			for _, every := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond} {
				t.Run(fmt.Sprintf("%dMi left, %d pods, every %v", left/mi, pods, every), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { flappingPodsCostLittle(t, left, pods, every) })
				})
			}
		}
	}
}

func flappingPodsCostLittle(t *testing.T, left int64, pods int, every time.Duration) {
	const lasts = 3 * time.Minute
	random := rand.New(rand.NewPCG(1, 2))
	name := func(i int) string { return fmt.Sprintf("system-%d", i) }
	n := newNode()
	for i := range pods {
		n.add(name(i), 200*mi, func(pod *v1.Pod) {
			pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		})
	}
	n.available(left)
	k := &costlyPods{costly{kernel: kernel{node: n}}}
	c := n.config(t, hard("1Gi"))
	c.Memory, c.Options = k, fencesOn()
	run(t, n, c, func(_ *Manager, wait func(time.Duration)) {
		wait(time.Minute)
		k.reset()
		for begin := time.Now(); time.Since(begin) < lasts; wait(every) {
			for range 3 {
				i, memory := random.IntN(pods), 196+random.Int64N(8)
				n.mu.Lock()
				n.pods[name(i)].memory = memory * mi
				n.mu.Unlock()
			}
		}
		if looks, readings := k.spent(); looks+readings > lasts/50+lasts/500 {
			t.Errorf("%v of looks and %v of readings in %v", looks, readings, lasts)
		}
	})
}
