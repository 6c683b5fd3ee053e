package nodeshutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubeletevents "k8s.io/kubernetes/pkg/kubelet/events"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
)

const (
	// A login manager that cannot be reached is tried again after firstPause, as by stock, doubled up to lastPause.
	firstPause, lastPause = time.Second, time.Minute
)

// watch is what the goroutine owns that listens to the login manager.
type watch struct {
	*Manager
	logind Logind
	// events is nil while there is no connection, disconnect ends what listens on the present one.
	events     <-chan bool
	disconnect context.CancelFunc
	// pause is how long to wait for the next attempt to connect.
	pause time.Duration
	// periods are those configured, as far as they are granted.
	periods []plan.Period
	// lock is nil when none is held. It lasts longer than the connection.
	lock io.Closer
	// stop is the stopping of pods that has begun last; nil if none, or if it was cancelled.
	stop *stopping
}

// run returns when ctx has ended.
func (w *watch) run(ctx context.Context) {
	defer w.release(ctx)
	for ctx.Err() == nil {
		w.next(ctx)
	}
	w.hangUp()
}

// next waits for one thing to happen and does what follows from it.
func (w *watch) next(ctx context.Context) {
	var again <-chan time.Time
	if w.events == nil {
		timer := w.cfg.Clock.NewTimer(w.pause)
		defer timer.Stop()
		again = timer.C()
	}
	var stopped <-chan struct{}
	if w.lock != nil && w.stop != nil {
		stopped = w.stop.groups
	}
	select {
	case <-ctx.Done():
	case <-again:
		w.connect(ctx, false)
	case goingDown, connected := <-w.events:
		switch {
		case !connected:
			klog.FromContext(ctx).Error(nil, "Lost the connection to the login manager, connecting again")
			w.lost()
		case goingDown:
			w.goDown(ctx, false)
		default:
			w.stay(ctx)
		}
	case <-stopped:
		w.release(ctx)
		klog.FromContext(ctx).V(1).Info("Shutdown manager completed processing shutdown event, node will shutdown shortly")
	}
}

// connect takes a lock on a new connection and listens. When that fails there is no connection, and another attempt
// after a pause.
func (w *watch) connect(ctx context.Context, first bool) {
	w.hangUp()
	connection, cancel := context.WithCancel(ctx)
	w.disconnect = cancel
	heard, err := w.open(ctx, connection)
	if err != nil {
		w.hangUp()
		w.pause = min(max(2*w.pause, firstPause), lastPause)
		klog.FromContext(ctx).Error(err, "Failed to start node shutdown manager", "nextAttempt", w.pause)
		return
	}
	w.pause, w.events = 0, heard.Events
	switch down := w.ShutdownStatus() != nil; {
	case heard.Known && heard.GoingDown && !down:
		w.goDown(ctx, first)
	case heard.Known && !heard.GoingDown && down:
		// The word was lost with the connection.
		w.stayed(ctx)
	}
}

// lost has the connection made anew. The lock is not lost with it.
func (w *watch) lost() {
	w.hangUp()
	w.pause = firstPause
}

func (w *watch) hangUp() {
	if w.disconnect != nil {
		w.disconnect()
	}
	w.events = nil
}

// open returns what is heard on a new connection, until the second context ends.
func (w *watch) open(ctx, connection context.Context) (Announcements, error) {
	logind, err := w.cfg.Connect()
	if err != nil {
		return Announcements{}, fmt.Errorf("connecting to the login manager: %w", err)
	}
	w.logind = logind
	w.grant(ctx)
	lock, err := logind.Inhibit()
	late := errors.Is(err, ErrGoingDown)
	if err != nil && !late {
		return Announcements{}, fmt.Errorf("taking the lock: %w", err)
	}
	heard, err := logind.Watch(connection)
	if err != nil {
		closeLock(ctx, lock)
		return Announcements{}, fmt.Errorf("listening to the login manager: %w", err)
	}
	if late {
		heard.Known, heard.GoingDown = true, true
		return heard, nil
	}
	w.release(ctx)
	w.lock = lock
	return heard, nil
}

// grant asks for as much time as is configured and takes what there is.
func (w *watch) grant(ctx context.Context) {
	wanted := plan.Total(w.cfg.Periods)
	granted, err := w.logind.Grant(ctx, wanted)
	w.periods = w.cfg.Periods
	if granted > 0 {
		w.periods = plan.Fit(w.cfg.Periods, granted)
	}
	if err != nil || granted < wanted {
		klog.FromContext(ctx).Error(err,
			"The machine will not wait for the pods as long as configured, their periods are shortened",
			"wanted", wanted, "granted", granted, "periods", w.periods)
	}
}

// goDown begins to stop the pods, unless that is under way. late says that the agent was started only now, so that its
// pods are yet to come.
func (w *watch) goDown(ctx context.Context, late bool) {
	klog.FromContext(ctx).V(1).Info("Shutdown manager detected new shutdown event", "event", "shutdown", "late", late)
	w.cfg.Recorder.Event(w.cfg.NodeRef, v1.EventTypeNormal, kubeletevents.NodeShutdown,
		"Shutdown manager detected shutdown event")
	stop := &stopping{Manager: w.Manager, periods: w.periods}
	if w.stop != nil {
		if !w.stop.over() {
			return
		}
		stop.returning = w.stop.returning
	}
	w.setDown(true, late)
	w.work.Go(func() { w.cfg.SyncNode(ctx) })
	stop.begin(ctx, late)
	w.stop = stop
}

// stay takes the lock for the next time. If that fails the connection is made anew, which tries again.
func (w *watch) stay(ctx context.Context) {
	lock, err := w.logind.Inhibit()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot take the lock again after the shutdown was cancelled, connecting again")
		w.lost()
	} else {
		w.release(ctx)
		w.lock = lock
	}
	w.stayed(ctx)
}

// stayed undoes goDown: what is not stopped yet runs on, and what returns with the node is started again.
func (w *watch) stayed(ctx context.Context) {
	klog.FromContext(ctx).V(1).Info("Shutdown manager detected new shutdown event", "event", "cancelled")
	w.cfg.Recorder.Event(w.cfg.NodeRef, v1.EventTypeNormal, kubeletevents.NodeShutdown,
		"Shutdown manager detected shutdown cancellation")
	var returning []*v1.Pod
	if w.stop != nil {
		returning = w.stop.end()
		w.stop = nil
	}
	w.forgetEnded()
	w.setDown(false, false)
	w.work.Go(func() { w.cfg.SyncNode(ctx) })
	if len(returning) > 0 {
		w.cfg.Pods.Restart(ctx, returning)
	}
}

// release lets the machine go down, as far as it waits for us. A lock is closed once: its number may belong to another
// file afterwards.
func (w *watch) release(ctx context.Context) {
	lock := w.lock
	w.lock = nil
	closeLock(ctx, lock)
}

func closeLock(ctx context.Context, lock io.Closer) {
	if lock == nil {
		return
	}
	if err := lock.Close(); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot release the lock that delays the shutdown")
	}
}
