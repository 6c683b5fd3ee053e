package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plimsoll-project/plimsoll/pkg/apis/reporterplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

const (
	// A stream is read at streamRate bytes per second at most, where each message counts messageCost bytes more: 256 small
	// messages per second.
	streamRate  = 4 << 20
	messageCost = 16 << 10
	// maxErrorText is the greatest length of the text of an error of a plugin, in bytes.
	maxErrorText = 512
)

// Call runs a function with the connection to a plugin, and returns its error.
type Call func(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error

// Plugin is a reporter plugin behind a socket.
type Plugin struct{ call, stream Call }

var _ reporter.Plugin = (*Plugin)(nil)

// New returns a plugin. call makes polls, one at a time; stream opens the stream beside them, without a time limit.
func New(call, stream Call) *Plugin { return &Plugin{call, stream} }

// GetReportContent polls the plugin.
func (p *Plugin) GetReportContent(ctx context.Context) ([]merge.Content, error) {
	var got answer
	err := p.call(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		err := conn.Invoke(ctx, v1alpha1.ReporterPlugin_GetReportContent_FullMethodName, nil, &got, callOptions()...)
		if err != nil {
			return err
		}
		return got.err
	})
	if err != nil {
		return nil, failure(err)
	}
	return got.contents, nil
}

// ListAndWatch reads the stream until it ends. A message that is too large, or that cannot be decoded, ends it.
func (p *Plugin) ListAndWatch(ctx context.Context, send func([]merge.Content)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := p.stream(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		stream, err := conn.NewStream(ctx, &v1alpha1.ReporterPlugin_ServiceDesc.Streams[0],
			v1alpha1.ReporterPlugin_ListAndWatchReportContent_FullMethodName, callOptions()...)
		if err != nil {
			return err
		}
		if err := stream.SendMsg(nil); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		return receive(ctx, stream, send)
	})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return failure(err)
}

// receive passes the messages of a stream on. It returns io.EOF when the plugin has ended the stream.
func receive(ctx context.Context, stream grpc.ClientStream, send func([]merge.Content)) error {
	for {
		var got answer
		if err := stream.RecvMsg(&got); err != nil {
			return err
		}
		if got.err != nil {
			return got.err
		}
		send(got.contents)
		if err := pause(ctx, got.size); err != nil {
			return err
		}
	}
}

// pause waits for as long as a message of that size may take.
func pause(ctx context.Context, size int) error {
	timer := time.NewTimer(time.Duration(size+messageCost) * time.Second / streamRate)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func callOptions() []grpc.CallOption {
	return []grpc.CallOption{grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxMessage)}
}

// failure returns the error with that of the contract that it means among its causes.
func failure(err error) error {
	if err == nil || errors.Is(err, reporter.ErrTooLarge) || errors.Is(err, errInvalid) {
		return err
	}
	switch {
	case errors.Is(err, pluginhost.ErrSuspended):
		return fmt.Errorf("%w: %w", reporter.ErrSuspended, err)
	case errors.Is(err, pluginhost.ErrUnverified):
		return fmt.Errorf("%w: %w", reporter.ErrNotCalled, err)
	}
	s, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("%w: %s", reporter.ErrUnreachable, shorten(err.Error()))
	}
	switch s.Code() {
	case codes.Unimplemented:
		return reporter.ErrUnimplemented
	case codes.ResourceExhausted:
		// gRPC returns it for a message that is too large.
		return fmt.Errorf("%w: more than %d bytes", reporter.ErrTooLarge, maxMessage)
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unauthenticated:
		return fmt.Errorf("%w: %v: %s", reporter.ErrUnreachable, s.Code(), shorten(s.Message()))
	default:
		return fmt.Errorf("%v: %s", s.Code(), shorten(s.Message()))
	}
}

// shorten cuts a text of a plugin.
func shorten(text string) string {
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return strings.Clone(strings.ToValidUTF8(text, ""))
}
