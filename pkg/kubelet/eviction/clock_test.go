package eviction

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// TestAnImageDiskIsServedAfterTheClockWasSet: its stats are dated by the runtime. Before and after the clock is set
// by an hour, back or forward, one pod after the other is evicted, each after the node has been reclaimed from.
func TestAnImageDiskIsServedAfterTheClockWasSet(t *testing.T) {
	for _, setting := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(fmt.Sprint(setting), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.images = &diskState{capacity: 100 * gi, used: 99 * gi}
				n.killTakes = 3 * time.Second
				for i := range 60 {
					n.add(fmt.Sprintf("writer-%02d", i), gi).disk = gi / 10
				}
				n.available(20 * gi)
				c := n.config(t, settings.ThresholdConfig{Hard: map[string]string{"imagefs.available": "15Gi"}})
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					wait(time.Minute)
					n.mu.Lock()
					n.setting = setting
					before, reclaims := len(n.kills), len(n.reclaimed)
					n.mu.Unlock()
					wait(2 * time.Minute)
					if kills := n.killed(); before == 0 || len(kills) < before+3 {
						t.Errorf("%d kills in the minute before, %d with the two minutes after", before, len(kills))
					}
					if reclaimed := len(n.reclaimed); reclaimed < reclaims+3 {
						t.Errorf("%d reclaims before, %d with those after", reclaims, reclaimed)
					}
				})
			})
		})
	}
}

// TestTheAgentsClock: times by the monotonic clock measure what has passed, whatever is done to the wall clock. All
// times are plain, so that nothing is lost when they are written.
func TestTheAgentsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &settableClock{}
		c := newAgentClock(source)
		first := c.moment()
		expect(t, "the wall time at the start", first.wallTime, first.taken)
		<-time.After(time.Minute)
		source.step.Store(int64(-time.Hour))
		second := c.moment()
		expect(t, "time that has passed", second.taken.Sub(first.taken), time.Minute)
		expect(t, "the same by the wall clock", second.wallTime.Sub(first.wallTime), time.Minute-time.Hour)
		expect(t, "now", c.now(), second.taken)
		d := policy.Decision{At: second.taken, WallTime: second.wallTime}
		expect(t, "the first time, for people", d.WallTimeOf(first.taken), first.taken.Add(-time.Hour))
		d.WallTime = d.WallTime.Add(300 * time.Millisecond)
		expect(t, "the same when the clocks have drifted apart", d.WallTimeOf(first.taken), first.taken.Add(-time.Hour))
		for _, at := range []time.Time{second.taken, second.wallTime} {
			text, err := at.MarshalText()
			var read time.Time
			if err := errors.Join(err, read.UnmarshalText(text)); err != nil {
				t.Fatal(err)
			}
			expect(t, "a time that was written and read", read, at)
		}
	})
}

// TestPeopleAreToldTheWallTime: signals have been unknown since the clock was set; events and the node's condition
// say so by the clock as it is set now.
func TestPeopleAreToldTheWallTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.available(gi)
		c := n.config(t, hard("100Mi"))
		source := &settableClock{}
		c.Clock = source
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			source.step.Store(int64(-time.Hour))
			n.mu.Lock()
			n.summaryErr = errors.New("no summary")
			n.mu.Unlock()
			lost := time.Now()
			wait(time.Minute)
			signals, since := m.UnknownSignals(v1.NodeMemoryPressure)
			expect(t, "unknown signals", signals, []string{"memory.available"})
			if late := since.Sub(lost.Add(-time.Hour)); late < 0 || late > 11*time.Second {
				t.Errorf("unknown since %v, want at most 11s after %v", since, lost.Add(-time.Hour))
			}
			want := "Signals [memory.available] are unknown since " + since.Format(time.RFC3339) +
				"; MemoryPressure stays false"
			expect(t, "events", n.eventsOf(eventSignalUnknown), []string{want})
		})
	})
}

// settableClock is a machine's clock whose wall clock is set by step.
type settableClock struct {
	clock.RealClock
	step atomic.Int64 // nanoseconds
}

func (c *settableClock) Now() time.Time { return stepped(time.Now(), time.Duration(c.step.Load())) }

// TestTheEndOfAGracePeriodDoesNotMoveWithTheClock: a deletion is dated by the API server's wall clock. The agent counts
// from when it first saw the pod deleted, and never more than the grace period.
func TestTheEndOfAGracePeriodDoesNotMoveWithTheClock(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := plainPod("deleted")
	b, f, setting := builder{}, &stats{}, time.Duration(0)
	end := func(pod *v1.Pod, now time.Time) time.Duration {
		t.Helper()
		f.moment = moment{taken: now, wallTime: now.Add(setting)}
		pods := b.pods([]*v1.Pod{pod}, f, everyPod)
		if len(pods) != 1 || pods[0].Terminating == nil {
			t.Fatalf("%+v", pods)
		}
		return pods[0].Terminating.Deadline.Sub(start)
	}
	deleted := func(end time.Time, grace int64) *v1.Pod {
		pod = pod.DeepCopy()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: end}, &grace
		return pod
	}
	expect(t, "end", end(deleted(start.Add(20*time.Second), 30), start), 20*time.Second)
	same := pod.DeepCopy()
	same.Labels = map[string]string{"some": "update"}
	setting = time.Hour
	expect(t, "end after the clock was set", end(same, start.Add(5*time.Second)), 20*time.Second)
	setting = 0
	expect(t, "end when less is left", end(deleted(start.Add(10*time.Second), 10), start), 10*time.Second)
	expect(t, "end by a fast clock of the API server", end(deleted(start.Add(time.Hour), 30), start), 30*time.Second)

	pod = plainPod("running")
	b.pods([]*v1.Pod{pod}, &stats{moment: moment{taken: start.Add(-4 * time.Second)}}, everyPod)
	expect(t, "end by a clock that was set forward", end(deleted(start.Add(-time.Hour), 30), start), 26*time.Second)
	expect(t, "end when it is deleted once more", end(deleted(start.Add(-2*time.Hour), 2), start), -2*time.Hour)
}
