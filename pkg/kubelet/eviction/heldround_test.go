package eviction

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// lifts counts rounds that say that no hard threshold is met, at the same time as another one says that one is.
type lifts struct {
	taken time.Time
	met   bool
	count int
}

func (*lifts) Name() string                    { return "lifts" }
func (*lifts) Result(context.Context, *Result) {}

func (l *lifts) Round(_ context.Context, r *Round) {
	met := r.Decision.Condition(v1.NodeMemoryPressure).HardMet
	if l.met && !met && r.Snapshot.Taken.Equal(l.taken) {
		l.count++
	}
	l.taken, l.met = r.Snapshot.Taken, met
}

// A collection shows that only the soft threshold is crossed, the read for which its round waits that the hard one is
// too. The round of the collection does not say that the hard one is clear again, and no pod is admitted.
func TestHeldRoundDoesNotLiftTheHardThreshold(t *testing.T) {
	const rate = 2000
	lifted, admitted := 0, 0
	for offset := -50 * time.Millisecond; offset < 10*time.Millisecond; offset += 2 * time.Millisecond {
		for above := int64(15); above < 60; above += 5 {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(t, (above+20)*mi, 0, "hog")
				k := b.pricedKernel()
				k.full = 10 * time.Millisecond
				b.config.Memory = k
				b.config.Thresholds = b.node.config(t, settings.ThresholdConfig{
					Hard:             map[string]string{"memory.available": "100Mi"},
					Soft:             map[string]string{"memory.available": "110Mi"},
					SoftGracePeriods: map[string]string{"memory.available": "1h"},
				}).Thresholds
				burstable := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
				memoryRequest(gi)(burstable)
				l, lets := &lifts{}, 0
				var m *Manager
				b.config.Sinks = append(b.config.Sinks, l, OnRelief("relief", func() {
					if m.Admit(&lifecycle.PodAdmitAttributes{Pod: burstable}).Admit {
						lets++
					}
				}))
				run(t, b.node, b.config, func(started *Manager, wait func(time.Duration)) {
					m = started
					wait(14 * time.Second)
					b.available((100 + above) * mi)
					b.grows("hog", rate*mi)
					crossing := time.Duration(above) * time.Second / rate
					wake := max(0, crossing+offset)
					wait(wake)
					m.Wake() // A collection begins.
					wait(crossing + 130*time.Millisecond - wake)
				})
				if l.count > 0 {
					lifted, admitted = lifted+1, admitted+lets
				}
			})
		}
	}
	if lifted > 0 {
		t.Errorf("in %d of 270 scenes the round of a collection says that a hard threshold is not met any more; %d pods are "+
			"admitted", lifted, admitted)
	}
}

// The counters have raised a false alarm, and the credit for reading is used up. Then a pod grows, and a collection,
// which is exact, shows a crossing. The pod is the victim, not the largest one.
func TestCollectionAtTheCrossingAfterAFalseAlarm(t *testing.T) {
	wrong := inPhases(t, 12, 217*time.Millisecond, func(t *testing.T, rest time.Duration) (right bool) {
		b := newBurst(t, mi, 0, "hog")
		k := &off{*b.pricedKernel()}
		k.counters, k.usages, k.full = 400*time.Microsecond, 800*time.Microsecond, 20*time.Millisecond
		b.config.Memory = k
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(21*time.Second + rest)
			k.useUpCredit()
			reads := func() int {
				b.mu.Lock()
				defer b.mu.Unlock()
				return k.counterReads
			}
			for before := reads(); reads() == before; {
				wait(5 * time.Millisecond)
			}
			b.grows("hog", 100*mi)
			wait(10 * time.Millisecond)
			m.Wake()
			wait(150 * time.Millisecond)
			got := b.fencer.victims()
			right = len(got) > 0 && got[0].pod == "hog"
		})
		return right
	})
	if wrong > 0 {
		t.Errorf("%d of 12 decisions were wrong", wrong)
	}
}

// recovering is a kernel of a node that recovers right after a collection has read it.
type recovering struct {
	priced
	armed bool
}

func (k *recovering) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	k.pay(k.full)
	if k.armed {
		k.available(90 * mi)
	}
	r := k.kernel.ReadMemory(how)
	if k.armed {
		k.armed = false
		k.available(4 * gi)
	}
	return r
}

// The read for which the round of a collection waits shows that the node has recovered: no pod is evicted.
func TestCrossingThatRecedesBeforeTheAwaitedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 50*mi, 0, "hog")
		k := &recovering{priced: *b.pricedKernel()}
		b.config.Memory = k
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(14 * time.Second)
			k.armed = true
			m.Wake()
			wait(500 * time.Millisecond)
			if got := b.fencer.victims(); len(got) > 0 {
				t.Errorf("victims %v", got)
			}
		})
	})
}
