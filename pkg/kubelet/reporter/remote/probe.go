package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// pollFirst is how long a probe waits for the answer to a poll before it opens a stream as well. A plugin may send each
// message to one of its streams only; a message that the stream of a probe receives is lost.
const pollFirst = time.Second

var (
	errPluginError = errors.New("the plugin has returned an error")
	errStreamEnded = errors.New("the stream has ended without a message")
)

// Probe returns nil as soon as the plugin at the other end of the connection has answered a poll or sent a message,
// whatever is in it. Otherwise it returns an error when both calls have failed, at the end of ctx at the latest. The
// error has no text of the plugin. It is for pluginhost.Config.
func Probe(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	direct := func(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error {
		return call(ctx, conn)
	}
	p, poll, stream := New(direct, direct), make(chan error, 1), make(chan error, 1)
	calls.Go(func() { poll <- p.probePoll(ctx) })
	first := time.NewTimer(pollFirst)
	defer first.Stop()
	var pollErr, streamErr error
	select {
	case pollErr = <-poll:
		if pollErr == nil {
			return nil
		}
	case <-first.C:
	}
	calls.Go(func() { stream <- p.probeStream(ctx) })
	for pollErr == nil || streamErr == nil {
		select {
		case pollErr = <-poll:
			if pollErr == nil {
				return nil
			}
		case streamErr = <-stream:
			if streamErr == nil {
				return nil
			}
		}
	}
	return fmt.Errorf("poll: %w; stream: %w", pollErr, streamErr)
}

// probePoll returns nil if the plugin has answered a poll.
func (p *Plugin) probePoll(ctx context.Context) error {
	_, err := p.GetReportContent(ctx)
	return unanswered(err)
}

// probeStream returns nil if the plugin has sent a message. It ends the stream then.
func (p *Plugin) probeStream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := false
	err := p.ListAndWatch(ctx, func([]merge.Content) {
		sent = true
		cancel()
	})
	switch {
	case sent:
		return nil
	case err == nil:
		return errStreamEnded
	default:
		return unanswered(err)
	}
}

// unanswered returns the error of a call that was not answered, without texts of the plugin. An answer that is too
// large is one: it is refused later.
func unanswered(err error) error {
	if err == nil || errors.Is(err, reporter.ErrTooLarge) {
		return nil
	}
	for _, known := range []error{
		reporter.ErrUnimplemented, reporter.ErrNotCalled, reporter.ErrUnreachable, errInvalid,
	} {
		if errors.Is(err, known) {
			return known
		}
	}
	return errPluginError
}
