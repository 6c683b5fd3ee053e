package eviction

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// stepped is an instant as the agent's clock reads it when the wall clock has been stepped. Times of a bubble have no
// monotonic part; those of a real clock do, and that part is not stepped. The layout is that of package time;
// TestSteppedClock fails when it changes.
func stepped(t time.Time, by time.Duration) time.Time {
	const hasMonotonic, secondsShift, nanoseconds = 1 << 63, 30, 1<<30 - 1
	wallStart := time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC)
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	seconds := uint64(t.Add(by).Unix() - wallStart.Unix())
	made := layout{ext: t.UnixNano(), loc: time.UTC}
	made.wall = hasMonotonic | seconds<<secondsShift | uint64(t.Nanosecond())&nanoseconds
	return *(*time.Time)(unsafe.Pointer(&made))
}

// modelClock is the agent's clock.
type modelClock struct {
	clock.RealClock
	node *modelNode
}

func (c modelClock) Now() time.Time {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	return stepped(time.Now(), c.node.step)
}

// steps sets the wall clock.
func (n *modelNode) steps(by time.Duration) {
	n.step += by
	n.steppedAt = append(n.steppedAt, n.at)
}

// stamp is what a source outside of the agent writes down as the time of its stats: the wall clock's.
func (n *modelNode) stamp() metav1.Time { return metav1.NewTime(stepped(n.at, n.step).Round(0)) }

// TestSteppedClock: the monotonic part of a time stays.
func TestSteppedClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		before, after := stepped(at, 0), stepped(at.Add(time.Second), -time.Hour)
		expect(t, "difference by the monotonic clock", after.Sub(before), time.Second)
		expect(t, "difference by the wall clock", after.Round(0).Sub(before.Round(0)), time.Second-time.Hour)
		expect(t, "difference from a time without a monotonic part", after.Sub(before.Round(0)), time.Second-time.Hour)
		expect(t, "the wall clock without a step", before.Round(0).Equal(at), true)
	})
}
