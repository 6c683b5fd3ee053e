package eviction

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// inPhases plays a scene a few times, in other phases of the readings, and returns how often it went wrong.
func inPhases(t *testing.T, count int, apart time.Duration, play func(t *testing.T, rest time.Duration) (right bool)) (
	wrong int,
) {
	t.Helper()
	for phase := range count {
		synctest.Test(t, func(t *testing.T) {
			if !play(t, 12*time.Second+time.Duration(phase)*apart) {
				wrong++
			}
		})
	}
	return wrong
}

// A hog with huge pages begins 5 MiB above the threshold. It is fenced at the crossing.
func TestHogWithHugePagesIsFenced(t *testing.T) {
	for _, rate := range []int64{60, 100, 150} {
		wrong := inPhases(t, 12, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, 5*mi, 0, "hog")
			b.pods["hog"].step = hugePage
			b.config.Memory = b.pricedKernel()
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(rest)
				b.grows("hog", rate*mi)
				wait(65 * time.Second / time.Duration(rate))
				right = b.onlyFenced("hog")
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("%d MiB/s: %d of 12 decisions were wrong", rate, wrong)
		}
	}
}

// A crossing that is caused by pods whose growth was measured reads no other pods, however little they grow from look
// to look.
func TestCrossingOfMeasuredPodsReadsNoOthers(t *testing.T) {
	for _, test := range []struct {
		hogs       int
		rate, step int64
	}{{1, 60, hugePage}, {1, 100, hugePage}, {1, 150, hugePage}, {2, 60, 0}, {3, 50, 0}, {5, 25, 0}} {
		wrong := inPhases(t, 12, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
			var names []string
			for i := range test.hogs {
				names = append(names, fmt.Sprintf("hog-%d", i))
			}
			b := newBurst(t, 60*mi, 0, names...)
			k := b.pricedKernel()
			b.config.Memory = k
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(rest)
				before := k.read()
				for _, name := range names {
					b.pods[name].step = test.step
					b.grows(name, test.rate*mi)
				}
				wait(60*time.Second/time.Duration(test.rate*int64(test.hogs)) + 20*time.Millisecond)
				right = k.read() == before
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("%+v: all pods were read at %d of 12 crossings", test, wrong)
		}
	}
}

// growingCache is a kernel where "hog" grows by active page cache, which counts as used, but is no memory that a pod
// keeps for itself.
type growingCache struct{ priced }

func (k *growingCache) ReadPod(how snapshot.Counting, uid types.UID) (snapshot.PodMemory, error) {
	r, err := k.priced.ReadPod(how, uid)
	if uid == "hog" {
		r.Resident = snapshot.Bytes(5 * mi)
	}
	return r, err
}

// A pod that grows by active page cache is evicted, not a large one.
func TestGrowthOfActivePageCache(t *testing.T) {
	for _, rate := range []int64{20, 50, 100} {
		wrong := inPhases(t, 6, 2173*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
			b := newBurst(t, 0, 0, "hog")
			b.add("large", 1000*mi)
			b.available((100 + 5*rate) * mi)
			b.config.Memory = &growingCache{*b.pricedKernel()}
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(rest)
				b.grows("hog", rate*mi)
				wait(5*time.Second + 300*time.Millisecond)
				got := b.fencer.victims()
				right = len(got) == 1 && got[0].pod == "hog"
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("%d MiB/s: %d of 6 decisions were wrong", rate, wrong)
		}
	}
}

// Six pods grow slowly, and one that begins 300 ms before the crossing about ten times as fast as each. It is the first
// victim.
func TestSlowPodsDoNotHideAFasterOne(t *testing.T) {
	for _, test := range []struct {
		pods       int
		slow, rate int64
	}{{6, 2, 15}, {6, 2, 22}, {6, 1, 20}, {6, 3, 24}, {7, 2, 20}} {
		wrong := inPhases(t, 12, 217310*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
			names := []string{"zhog"} // The last one.
			for i := range test.pods {
				names = append(names, fmt.Sprintf("slow-%d", i))
			}
			b := newBurst(t, 0, 0, names...)
			b.add("large", 1000*mi)
			b.available((100+(43*test.slow*int64(test.pods)+3*test.rate)/10)*mi + mi/2)
			b.config.Memory = b.pricedKernel()
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(time.Second + rest)
				for _, name := range names[1:] {
					b.grows(name, test.slow*mi)
				}
				wait(4 * time.Second)
				b.grows("zhog", test.rate*mi)
				wait(700 * time.Millisecond)
				got := b.fencer.victims()
				right = len(got) > 0 && got[0].pod == "zhog"
			})
			return right
		})
		if wrong > 0 {
			t.Errorf("%+v: %d of 12 decisions were wrong", test, wrong)
		}
	}
}

// A collection ends when a threshold is crossed, just before the counters are read again. The hog is fenced.
func TestCollectionAtTheCrossing(t *testing.T) {
	const above, rate = 40, 400
	for offset := -30 * time.Millisecond; offset <= 30*time.Millisecond; offset += time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, above*mi, 0, "hog")
			k := b.pricedKernel()
			k.full = 5 * time.Millisecond
			b.config.Memory = k
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(20*time.Second + offset - above*time.Second/rate)
				b.grows("hog", rate*mi)
				wait(above*time.Second/rate + 60*time.Millisecond)
				if !b.onlyFenced("hog") {
					t.Errorf("offset %v: victims %v", offset, b.fencer.victims())
				}
			})
		})
	}
}
