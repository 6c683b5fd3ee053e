package eviction

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAnImageDiskIsServedAfterTheClockWasSet: its figures are dated by the runtime. Before and after the clock is set
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
				c := n.config(t, ThresholdConfig{Hard: map[string]string{"imagefs.available": "15Gi"}})
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

// TestTheEndOfAGracePeriodDoesNotMoveWithTheClock: a deletion is dated by the API server's time of day. The agent
// counts from when it first saw the pod deleted, and never more than the grace period.
func TestTheEndOfAGracePeriodDoesNotMoveWithTheClock(t *testing.T) {
	start := time.Now()
	pod := plainPod("deleted")
	b, f := builder{}, &figures{}
	end := func(pod *v1.Pod, now time.Time) time.Duration {
		t.Helper()
		f.taken = now
		pods := b.pods([]*v1.Pod{pod}, f, everyPod)
		if len(pods) != 1 || pods[0].Terminating == nil {
			t.Fatalf("%+v", pods)
		}
		deadline := pods[0].Terminating.Deadline
		//nolint:staticcheck // whether there is a monotonic part is what is asked, and Equal does not say
		if deadline == deadline.Round(0) {
			t.Error("the end is a time of day, which may be set")
		}
		return deadline.Sub(start)
	}
	deleted := func(end time.Time, grace int64) *v1.Pod {
		pod = pod.DeepCopy()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: end.Round(0)}, &grace
		return pod
	}
	expect(t, "end", end(deleted(start.Add(20*time.Second), 30), start), 20*time.Second)
	same := pod.DeepCopy()
	same.Labels = map[string]string{"some": "update"}
	expect(t, "end five seconds later", end(same, start.Add(5*time.Second)), 20*time.Second)
	expect(t, "end when less is left", end(deleted(start.Add(10*time.Second), 10), start), 10*time.Second)
	expect(t, "end by a fast clock of the API server", end(deleted(start.Add(time.Hour), 30), start), 30*time.Second)

	pod = plainPod("running")
	b.pods([]*v1.Pod{pod}, &figures{taken: start.Add(-4 * time.Second)}, everyPod)
	expect(t, "end by a clock that was set forward", end(deleted(start.Add(-time.Hour), 30), start), 26*time.Second)
	expect(t, "end when it is deleted once more", end(deleted(start.Add(-2*time.Hour), 2), start), -2*time.Hour)
}
