package eviction

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/notify"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// fakePressure is a source without a level.
type fakePressure struct{ gone, closed bool }

func (f *fakePressure) Gone() bool   { return f.gone }
func (f *fakePressure) Close() error { f.closed = true; return nil }

// pressureOpener opens fake sources, or returns err beside or instead of them.
type pressureOpener struct {
	opened []*fakePressure
	tries  int
	err    error
	beside bool
}

func (o *pressureOpener) open(snapshot.Signal) (pressure, error) {
	o.tries++
	if o.err != nil && !o.beside {
		return nil, o.err
	}
	o.opened = append(o.opened, &fakePressure{})
	return o.opened[len(o.opened)-1], o.err
}

func TestPressureNotificationsFollowTheThresholds(t *testing.T) {
	o := &pressureOpener{}
	n := &pressureNotifications{open: o.open}
	w, now := someWatched(), time.Unix(100, 0)
	w.ids = append(w.ids, softOfNode)
	for i := range 3 {
		n.arm(t.Context(), w, now.Add(time.Duration(i)*2*retrySources))
	}
	expect(t, "sources", len(o.opened), 2)
	w.ids = w.ids[:1]
	n.arm(t.Context(), w, now.Add(6*retrySources))
	expect(t, "closed", []bool{o.opened[0].closed, o.opened[1].closed}, []bool{false, true})
	w.ids = someWatched().ids
	n.arm(t.Context(), w, now.Add(6*retrySources+time.Second))
	expect(t, "sources when the threshold is there again", len(o.opened), 3)
	n.close()
	expect(t, "closed in the end", []bool{o.opened[0].closed, o.opened[2].closed}, []bool{true, true})
}

// TestSourceThatFailedIsOpenedWhenItsThresholdComesBack: at once, and not after the minute since the last attempt.
func TestSourceThatFailedIsOpenedWhenItsThresholdComesBack(t *testing.T) {
	o := &pressureOpener{err: notify.ErrNoCgroup}
	n := &pressureNotifications{open: o.open}
	w, now := someWatched(), time.Unix(100, 0)
	n.arm(t.Context(), w, now)
	ids := w.ids
	w.ids = nil
	n.arm(t.Context(), w, now.Add(time.Second))
	w.ids, o.err = ids, nil
	n.arm(t.Context(), w, now.Add(2*time.Second))
	if len(o.opened) == 0 {
		t.Error("no source was opened")
	}
}

// TestPressureNotificationsOfACgroupThatIsMadeAgain: it is looked for once a minute, without a word in the log.
func TestPressureNotificationsOfACgroupThatIsMadeAgain(t *testing.T) {
	o := &pressureOpener{err: notify.ErrNoCgroup}
	n := &pressureNotifications{open: o.open}
	w, now := someWatched(), time.Unix(100, 0)
	w.ids = w.ids[1:]
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	for range 10 {
		n.arm(ctx, w, now)
		now = now.Add(retrySources / 4)
	}
	expect(t, "tries", o.tries, 3)
	o.err = nil
	for range 2 {
		n.arm(ctx, w, now.Add(retrySources))
	}
	o.opened[0].gone = true
	n.arm(ctx, w, now.Add(2*retrySources))
	expect(t, "sources", len(o.opened), 2)
	expect(t, "closed", []bool{o.opened[0].closed, o.opened[1].closed}, []bool{true, false})
	expect(t, "log", log.String(), "")
}

// TestRefusedPressureIsLoggedOnce: the kernel has no triggers for both signals, or only the events of the cgroup.
func TestRefusedPressureIsLoggedOnce(t *testing.T) {
	for _, beside := range []bool{false, true} {
		o := &pressureOpener{err: errors.Join(notify.ErrUnsupported), beside: beside}
		n := &pressureNotifications{open: o.open}
		var log bytes.Buffer
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
		for i := range 10 {
			n.arm(ctx, someWatched(), time.Unix(100, 0).Add(time.Duration(i)*retrySources))
		}
		n.close()
		expect(t, "lines", strings.Count(log.String(), "no kernel notifications"), 1)
		expect(t, "tries", o.tries, map[bool]int{false: 20, true: 2}[beside])
	}
}
