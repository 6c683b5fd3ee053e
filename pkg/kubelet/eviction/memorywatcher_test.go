package eviction

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// TestFastLeakIsCaughtAtTheCrossing: the node loses 1 GiB/s, and 100 MiB are left at the crossing.
func TestFastLeakIsCaughtAtTheCrossing(t *testing.T) {
	for _, cached := range []int64{0, 12 * gi} {
		t.Run(fmt.Sprintf("page cache %dGi", cached/gi), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.add("leak", gi).cached = cached
				n.add("neighbour", gi, memoryRequest(2*gi))
				n.available(12*gi + 100*mi)
				k := &kernel{node: n}
				c := n.config(t, hard("100Mi"))
				c.Memory = k
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					wait(3 * time.Second)
					n.grows("leak", gi)
					wait(12*time.Second - time.Millisecond)
					expect(t, "kills before the crossing", n.killed(), []string{})
					wait(51 * time.Millisecond)
					expect(t, "kills 50 ms after the crossing", n.killed(), []string{"leak/1"})
				})
			})
		})
	}
}

// TestSixInnocents is what was seen on a real node: small pods over their requests at priority 0, a leak at priority 1.
func TestD23OneEvictionOnAGrowingNode(t *testing.T) {
	for _, rate := range []int64{1, 20, 40, 200} {
		t.Run(fmt.Sprintf("%dMiB/s", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				for i := range 30 {
					n.add(fmt.Sprintf("small-%02d", i), 8*mi, memoryRequest(7*mi))
				}
				n.add("leak", 100*mi, priority(1), memoryRequest(50*mi))
				n.available(100*mi + rate*30*mi)
				c := n.config(t, hard("100Mi"))
				c.Memory = &kernel{node: n}
				n.killTakes = 1500 * time.Millisecond
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					n.grows("leak", rate*mi)
					wait(3 * time.Minute)
					expect(t, "kills", n.killed(), []string{"leak/1"})
				})
			})
		})
	}
}

func TestMemoryWatcherCostsLittleWhileMemoryIsPlenty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("pod", gi).cached = 10 * gi
		n.available(16 * gi)
		k := &kernel{node: n}
		c := n.config(t, hard("100Mi"))
		c.Memory = k
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(10 * time.Minute)
			if k.counterReads > 10*60 || k.readings > 20 {
				t.Errorf("%d reads of counters and %d readings in ten minutes", k.counterReads, k.readings)
			}
		})
	})
}

// TestLingeringSoftThresholdIsNotReadAllTheTime: a soft threshold with a long grace is met for an hour.
func TestLingeringSoftThresholdIsNotReadAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("pod", gi)
		n.available(2 * gi)
		k := &kernel{node: n}
		c := n.config(t, settings.ThresholdConfig{Soft: map[string]string{"memory.available": "4Gi"},
			SoftGracePeriods: map[string]string{"memory.available": "2h"}})
		c.Memory = k
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Hour)
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
			if k.readings > 500 {
				t.Errorf("%d readings in an hour", k.readings)
			}
		})
	})
}

func TestD10DirectReadingStandsInForTheSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 9*gi)
		n.add("small", gi)
		n.available(100 * mi)
		n.summaryErr = errors.New("image file system cannot be read")
		c := n.config(t, hard("1Gi"))
		c.Memory = &kernel{node: n}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			expect(t, "kills", n.killed(), []string{"hog/1"})
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
			expect(t, "outcome", len(m.last.Load().Decision.Needs), 0)
		})
	})
}

func TestHangingSummaryDoesNotStopEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.hang = make(chan struct{})
		n.add("hog", 9*gi)
		n.available(20 * gi)
		c := n.config(t, hard("1Gi"))
		c.Memory = &kernel{node: n}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			n.available(100 * mi)
			wait(11 * time.Second)
			expect(t, "kills", n.killed(), []string{"hog/1"})
		})
	})
}
