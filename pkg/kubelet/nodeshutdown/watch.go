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

// The delay between two attempts to connect to logind begins with minRetryDelay, as in stock, and doubles up to
// maxRetryDelay.
const (
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute
)

const (
	// statePeriod is how often logind is asked during a shutdown whether it still prepares for it: one that is restarted
	// has forgotten it, and announces no cancellation. It is asked as often while it has not said whether there is one.
	statePeriod = 10 * time.Second
	// statePatience is how long that may take, connectPatience an attempt to connect. Meanwhile the delay lock is not
	// released.
	statePatience   = 2 * time.Second
	connectPatience = 20 * time.Second
)

// watch is the state of the goroutine that watches logind.
type watch struct {
	*Manager
	logind Logind
	// events is nil without a connection, which unsubscribe ends.
	events      <-chan Announcement
	unsubscribe context.CancelFunc
	// retryDelay is the delay before the next attempt to connect.
	retryDelay time.Duration
	// periods are the configured periods, shortened if logind waits for a shorter time; none if it does not wait.
	periods []plan.Period
	// lock is the delay lock, nil if none is held. It outlasts the connection.
	lock io.Closer
	// stop is the last stop of the pods; nil before the first one, and after a cancellation.
	stop *podStop
	// confirmed is true if logind itself has announced this shutdown: others may send its signal.
	confirmed bool
	// connected is true after the first connection since the start of the agent.
	connected bool
	// state is what logind said last.
	state state
}

// run returns when ctx has ended.
func (w *watch) run(ctx context.Context) {
	defer w.releaseLock(ctx)
	for ctx.Err() == nil {
		w.handleNext(ctx)
	}
	w.disconnect()
}

// handleNext waits for one event and handles it.
func (w *watch) handleNext(ctx context.Context) {
	var retry <-chan time.Time
	if w.events == nil {
		timer := w.cfg.Clock.NewTimer(w.retryDelay)
		defer timer.Stop()
		retry = timer.C()
	}
	var groupsDone <-chan struct{}
	if w.lock != nil && w.stop != nil {
		groupsDone = w.stop.groupsDone
	}
	var ask <-chan time.Time
	if w.events != nil && (w.state == unknown || w.ShutdownStatus() != nil) {
		timer := w.cfg.Clock.NewTimer(statePeriod)
		defer timer.Stop()
		ask = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-retry:
		w.connect(ctx)
	case <-ask:
		w.checkState(ctx)
	case event, connected := <-w.events:
		switch {
		case !connected:
			klog.FromContext(ctx).Error(nil, "Connection to logind was lost, reconnecting")
			w.reconnectLater()
		case event.ShuttingDown:
			w.beginShutdown(ctx, false)
			w.confirmed = w.confirmed || event.ByLogind
			w.checkState(ctx)
		case w.ShutdownStatus() != nil && (event.ByLogind || !w.goesOn(ctx)):
			w.handleCancellation(ctx)
		}
	case <-groupsDone:
		w.releaseLock(ctx)
		klog.FromContext(ctx).V(1).Info("Shutdown manager completed processing shutdown event, node will shutdown shortly")
	}
}

// goesOn reports whether logind goes on with the shutdown that it has announced, although another program has sent the
// signal of its cancellation. If it does not answer, it is asked again later.
func (w *watch) goesOn(ctx context.Context) bool {
	if !w.confirmed {
		return false
	}
	w.askState(ctx)
	return w.state != calm
}

func (w *watch) askState(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, statePatience)
	defer cancel()
	w.readState(asked)
}

// checkState asks logind whether it prepares for a shutdown. It begins one that is not known yet, and cancels one that
// logind has forgotten.
func (w *watch) checkState(ctx context.Context) {
	w.askState(ctx)
	switch {
	case w.state == announced:
		if w.ShutdownStatus() == nil {
			w.beginShutdown(ctx, false)
		}
		w.confirmed = true
	case w.state == calm && w.confirmed:
		klog.FromContext(ctx).Info("Logind does not prepare any more for the shutdown that it has announced")
		w.handleCancellation(ctx)
	}
}

// connect opens a connection, with a lock and a subscription, and handles a shutdown or cancellation that happened
// without a connection. If it fails, there is no connection, and another attempt follows after retryDelay.
func (w *watch) connect(ctx context.Context) {
	w.disconnect()
	connection, cancel := context.WithCancel(ctx)
	w.unsubscribe = cancel
	events, err := w.open(connection)
	if err != nil {
		w.disconnect()
		w.retryDelay = min(max(2*w.retryDelay, minRetryDelay), maxRetryDelay)
		klog.FromContext(ctx).Error(err, "Failed to start node shutdown manager", "nextAttempt", w.retryDelay)
		return
	}
	w.retryDelay, w.events = 0, events
	switch shuttingDown := w.ShutdownStatus() != nil; {
	case w.state == announced && !shuttingDown:
		// With a lock it began a moment ago: the lock is to be released when the pods have stopped.
		w.beginShutdown(ctx, !w.connected && w.lock == nil)
	case w.state == calm && shuttingDown && w.confirmed:
		w.cancelShutdown(ctx)
	}
	w.connected, w.confirmed = true, w.confirmed || w.state == announced
}

// reconnectLater closes the connection. The next attempt follows after minRetryDelay. The lock is kept meanwhile.
func (w *watch) reconnectLater() {
	w.disconnect()
	w.retryDelay = minRetryDelay
}

func (w *watch) disconnect() {
	if w.unsubscribe != nil {
		w.unsubscribe()
	}
	w.events = nil
}

// state is whether logind prepares for a shutdown, if it can say so.
type state int

const (
	unknown state = iota
	calm
	announced
)

// open connects until connection ends, takes a lock, subscribes, and then reads the state: a shutdown that begins
// between the lock and the subscription is delayed by the lock, and is part of the state. The previous lock is released
// only after that.
func (w *watch) open(connection context.Context) (<-chan Announcement, error) {
	logind, err := w.cfg.Connect(connection)
	if err != nil {
		return nil, fmt.Errorf("connecting to logind: %w", err)
	}
	w.logind = logind
	attempt, cancel := context.WithTimeout(connection, connectPatience)
	defer cancel()
	if err := w.ensureDelay(attempt); err != nil {
		return nil, err
	}
	lock, err := logind.Inhibit(attempt)
	inProgress := errors.Is(err, ErrShutdownInProgress)
	if err != nil && !inProgress {
		return nil, fmt.Errorf("taking the delay lock: %w", err)
	}
	events, err := logind.Watch(connection)
	if err != nil {
		closeLock(connection, lock)
		return nil, fmt.Errorf("watching logind: %w", err)
	}
	if inProgress {
		w.state = announced
		return events, nil
	}
	w.releaseLock(connection)
	w.lock = lock
	w.readState(attempt)
	return events, nil
}

// readState asks logind whether it prepares for a shutdown.
func (w *watch) readState(ctx context.Context) {
	switch shuttingDown, err := w.logind.ShuttingDown(ctx); {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Failed to read whether the machine is shutting down", "err", err)
		w.state = unknown
	case shuttingDown:
		w.state = announced
	default:
		w.state = calm
	}
}

// ensureDelay makes logind wait for the total of the periods, and shortens the periods if it waits for a shorter time.
// It fails if logind does not say for how long it waits.
func (w *watch) ensureDelay(ctx context.Context) error {
	configured := plan.Total(w.cfg.Periods)
	granted, err := w.logind.EnsureInhibitDelay(ctx, configured)
	if errors.Is(err, ErrDelayUnknown) {
		return err //nolint:wrapcheck // It says all there is to say.
	}
	w.periods = plan.Fit(w.cfg.Periods, granted)
	if plan.Total(w.periods) == 0 {
		w.periods = nil // Pods are not stopped here: systemd gives them more time than none.
	}
	if err != nil || granted < configured {
		klog.FromContext(ctx).Error(err, "Shutdown delay is shorter than configured, shortened the periods of pods",
			"configured", configured, "granted", granted, "periods", w.periods)
	}
	return nil
}

// beginShutdown begins to stop the pods, unless that is in progress. startedDuring is true if the agent was started
// during the shutdown.
func (w *watch) beginShutdown(ctx context.Context, startedDuring bool) {
	klog.FromContext(ctx).V(1).Info("Shutdown manager detected new shutdown event", "event", "shutdown",
		"startedDuringShutdown", startedDuring)
	w.cfg.Recorder.Event(w.cfg.NodeRef, v1.EventTypeNormal, kubeletevents.NodeShutdown,
		"Shutdown manager detected shutdown event")
	stop := &podStop{Manager: w.Manager, periods: w.periods}
	if w.stop != nil {
		if !w.stop.isDone() {
			return
		}
		stop.restarting = w.stop.restarting
	}
	w.setShuttingDown(true, startedDuring)
	w.work.Go(func() { w.cfg.SyncNode(ctx) })
	stop.begin(ctx, startedDuring)
	w.stop = stop
}

// handleCancellation cancels the shutdown and takes a lock for the next one. If that has begun already, its pods are
// stopped at once. If no lock can be taken for another reason, it reconnects, which retries that.
func (w *watch) handleCancellation(ctx context.Context) {
	w.cancelShutdown(ctx)
	lock, err := w.logind.Inhibit(ctx)
	switch {
	case errors.Is(err, ErrShutdownInProgress):
		w.beginShutdown(ctx, false)
		w.confirmed = true
	case err != nil:
		klog.FromContext(ctx).Error(err, "Failed to take the delay lock after a cancelled shutdown, reconnecting")
		w.reconnectLater()
	default:
		w.releaseLock(ctx)
		w.lock = lock
	}
}

// cancelShutdown reverts beginShutdown: pods that were not stopped keep running, and those that were stopped and
// restart with the node are started.
func (w *watch) cancelShutdown(ctx context.Context) {
	klog.FromContext(ctx).V(1).Info("Shutdown manager detected new shutdown event", "event", "cancelled")
	w.cfg.Recorder.Event(w.cfg.NodeRef, v1.EventTypeNormal, kubeletevents.NodeShutdown,
		"Shutdown manager detected shutdown cancellation")
	var restarting []*v1.Pod
	if w.stop != nil {
		restarting = w.stop.end()
		w.stop = nil
	}
	w.removeEnded()
	w.confirmed = false
	w.setShuttingDown(false, false)
	w.work.Go(func() { w.cfg.SyncNode(ctx) })
	if len(restarting) > 0 {
		w.cfg.Pods.Restart(ctx, restarting)
	}
}

// releaseLock releases the delay lock, if one is held, so that logind does not wait for the agent any more. Each lock
// is closed once: its file descriptor may belong to another file afterwards.
func (w *watch) releaseLock(ctx context.Context) {
	lock := w.lock
	w.lock = nil
	closeLock(ctx, lock)
}

func closeLock(ctx context.Context, lock io.Closer) {
	if lock == nil {
		return
	}
	if err := lock.Close(); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to release the delay lock")
	}
}
