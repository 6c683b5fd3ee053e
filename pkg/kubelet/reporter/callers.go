package reporter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/plugincalls"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/answers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// The time until a stream that has ended is opened again doubles from minRedial to maxRedial, with up to redialJitter
// of it more.
const (
	minRedial    = time.Second
	maxRedial    = 30 * time.Second
	redialJitter = 0.2
)

// Names of the two calls in metrics and logs.
const (
	getReportContent = "GetReportContent"
	listAndWatch     = "ListAndWatchReportContent"
)

// caller calls one active plugin.
type caller struct {
	run    answers.Run
	plugin Plugin
	turns  *turns
	ctx    context.Context
	cancel context.CancelFunc
	// begun is when the last poll began. The loop alone uses it.
	begun time.Time
}

// turns have one place each, which the poll and the stream that are under way take. All callers of a plugin in the
// agent have the same: a plugin that is disabled and enabled again is not called before its last call has ended.
type turns struct{ poll, stream chan struct{} }

func newTurns() *turns { return &turns{make(chan struct{}, 1), make(chan struct{}, 1)} }

func (l *loop) newCaller(run answers.Run, plugin Plugin) *caller {
	c := &caller{run: run, plugin: plugin, turns: newTurns(), begun: l.config.Clock.Now()}
	if run.Socket == "" {
		if l.turns[run.Plugin] == nil {
			l.turns[run.Plugin] = c.turns
		}
		c.turns = l.turns[run.Plugin]
	}
	c.ctx, c.cancel = context.WithCancel(l.ctx)
	return c
}

// poll polls the plugin in a goroutine. While a poll is under way there is no other one; after the call time-out it
// counts as one that has failed.
func (l *loop) poll(c *caller) {
	timeout, now := l.options.Load().CallTimeout, l.config.Clock.Now()
	var begun answers.BegunPoll
	l.update(func(s *answers.Store, _ time.Time) { begun = s.BeginPoll(c.run) })
	select {
	case c.turns.poll <- struct{}{}:
	default:
		if now.Sub(c.begun) >= timeout {
			l.polled(c, begun, nil, fmt.Errorf("%w: the last call has not ended", ErrUnreachable))
		}
		return
	}
	c.begun = now
	l.calls.Go(func() {
		defer func() { <-c.turns.poll }()
		ctx, cancel := context.WithTimeout(c.ctx, timeout)
		defer cancel()
		var contents []merge.Content
		err := plugincalls.Guard(func() (err error) {
			contents, err = c.plugin.GetReportContent(ctx)
			return err
		})
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrUnreachable, ctx.Err())
		}
		callDuration.WithLabelValues(labels.Of(c.run.Plugin)).Observe(l.config.Clock.Since(now).Seconds())
		l.polled(c, begun, contents, err)
	})
}

// polled records the end of a poll.
func (d *Driver) polled(c *caller, poll answers.BegunPoll, contents []merge.Content, err error) {
	if c.ctx.Err() != nil {
		return
	}
	if err == nil {
		err = validate(contents)
	}
	countCall(c.run.Plugin, getReportContent, err)
	switch {
	case err == nil:
		d.update(func(s *answers.Store, now time.Time) { s.Polled(poll, contents, now) })
		return
	case errors.Is(err, ErrTooLarge):
		d.refused(c, answers.Poll, err)
	case errors.Is(err, ErrSuspended):
		d.update(func(s *answers.Store, now time.Time) { s.PollSuspended(poll, now) })
	case errors.Is(err, ErrNotCalled):
	case errors.Is(err, ErrUnreachable):
		d.update(func(s *answers.Store, now time.Time) { s.PollFailed(poll, now) })
	default:
		d.update(func(s *answers.Store, now time.Time) { s.NotPolled(poll, now) })
	}
	d.logFailure(c, getReportContent, err)
	plugincalls.Notify(d.failed)
}

// watch reads the stream of the plugin in a goroutine, and opens it again whenever it has ended.
func (l *loop) watch(c *caller) {
	l.calls.Go(func() {
		select {
		case c.turns.stream <- struct{}{}:
			defer func() { <-c.turns.stream }()
		case <-c.ctx.Done():
			return
		}
		backoff := newBackoff()
		for l.stream(c, &backoff) {
			timer := l.config.Clock.NewTimer(backoff.Step())
			select {
			case <-timer.C():
			case <-c.ctx.Done():
				timer.Stop()
			}
		}
	})
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: minRedial, Factor: 2, Jitter: redialJitter, Steps: 8, Cap: maxRedial}
}

// stream reads one stream. It returns whether it is to be opened again. The time until then begins anew after a stream
// that has sent an answer, or that was open for as long as that time can be.
func (d *Driver) stream(c *caller, backoff *wait.Backoff) (again bool) {
	if c.ctx.Err() != nil {
		return false
	}
	begun := d.config.Clock.Now()
	err := plugincalls.Guard(func() error {
		return c.plugin.ListAndWatch(c.ctx, func(contents []merge.Content) {
			if d.message(c, contents) {
				*backoff = newBackoff()
			}
		})
	})
	if c.ctx.Err() != nil {
		return false
	}
	d.update(func(s *answers.Store, _ time.Time) { s.StreamEnded(c.run) })
	countCall(c.run.Plugin, listAndWatch, err)
	if d.config.Clock.Since(begun) >= maxRedial {
		*backoff = newBackoff()
	}
	if errors.Is(err, ErrTooLarge) {
		d.refused(c, answers.Stream, err)
	}
	if errors.Is(err, ErrUnimplemented) {
		return false
	}
	d.logFailure(c, listAndWatch, err)
	return true
}

// message records a message of the stream. It returns whether it is an answer.
func (d *Driver) message(c *caller, contents []merge.Content) bool {
	if err := validate(contents); err != nil {
		d.refused(c, answers.Stream, err)
		return false
	}
	d.update(func(s *answers.Store, now time.Time) { s.Message(c.run, contents, now) })
	return true
}

// validate returns an error with ErrTooLarge for an answer beyond the limits.
func validate(contents []merge.Content) error {
	if err := merge.Validate(contents); err != nil {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return nil
}

// refused records an answer that is refused. It is logged once, until an answer of the same source is accepted.
func (d *Driver) refused(c *caller, source answers.Source, err error) {
	refusedTotal.WithLabelValues(labels.Of(c.run.Plugin)).Inc()
	var first bool
	d.update(func(s *answers.Store, now time.Time) { first = s.Refused(c.run, source, err.Error(), now) })
	if first {
		klog.FromContext(c.ctx).Info("Reporter plugins: answer is refused", "plugin", c.run.Plugin,
			"socket", c.run.Socket, "reason", err.Error())
	}
	plugincalls.Notify(d.failed)
}

func (d *Driver) logFailure(c *caller, method string, err error) {
	klog.FromContext(c.ctx).V(2).Info("Reporter plugins: call ended without an answer", "plugin", c.run.Plugin,
		"method", method, "err", err)
	var p *plugincalls.PanicError
	if errors.As(err, &p) {
		klog.FromContext(c.ctx).Error(err, "Reporter plugins: plugin panicked", "plugin", c.run.Plugin, "method", method,
			"stack", p.Stack)
	}
}
