package remote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/apis/reporterplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
)

// fakeConn is a connection to a plugin whose calls take a time and then return an error or an answer. The stream sends
// a message if it has no error.
type fakeConn struct {
	poll, message       time.Duration
	pollErr, messageErr error
	opened, open        int
}

func (f *fakeConn) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	return after(ctx, f.poll, f.pollErr)
}

func (f *fakeConn) NewStream(
	ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	f.opened++
	f.open++
	context.AfterFunc(ctx, func() { f.open-- })
	return &fakeStream{ctx: ctx, conn: f}, nil
}

func after(ctx context.Context, d time.Duration, err error) error {
	select {
	case <-time.After(d):
		return err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

type fakeStream struct {
	grpc.ClientStream
	ctx  context.Context
	conn *fakeConn
}

func (s *fakeStream) SendMsg(any) error { return nil }

func (s *fakeStream) CloseSend() error { return nil }

func (s *fakeStream) RecvMsg(any) error { return after(s.ctx, s.conn.message, s.conn.messageErr) }

// A plugin answers with a poll or with a message, whichever comes first. No stream is opened for one that answers a
// poll within a second. Text of the plugin is not part of the error.
func TestProbe(t *testing.T) {
	const never = time.Hour
	unimplemented, failure := status.Error(codes.Unimplemented, "secret"), status.Error(codes.Internal, "secret")
	for _, tc := range []struct {
		name  string
		conn  fakeConn
		takes time.Duration
		// opened is how many streams are opened.
		opened int
		// err has parts of the error; none for no error.
		err string
	}{
		{"poll", fakeConn{message: never}, 0, 0, ""},
		{"poll before a stream is opened", fakeConn{poll: 900 * time.Millisecond}, 900 * time.Millisecond, 0, ""},
		{"late poll", fakeConn{poll: 4 * time.Second, message: never}, 4 * time.Second, 1, ""},
		{"late poll, no stream", fakeConn{poll: 4 * time.Second, messageErr: unimplemented}, 4 * time.Second, 1, ""},
		{"message only", fakeConn{pollErr: unimplemented, message: 3 * time.Second}, 3 * time.Second, 1, ""},
		{"message, poll hangs", fakeConn{poll: never, message: 3 * time.Second}, 4 * time.Second, 1, ""},
		{"message, poll fails", fakeConn{pollErr: failure, message: time.Second}, time.Second, 1, ""},
		{"too large", fakeConn{pollErr: status.Error(codes.ResourceExhausted, "")}, 0, 0, ""},
		{"hangs", fakeConn{poll: never, message: never}, 5 * time.Second, 1, "poll: the plugin does not respond; stream: "},
		{"neither implemented", fakeConn{pollErr: unimplemented, messageErr: unimplemented}, 0, 1,
			"poll: the plugin does not implement the call; stream: the plugin does not implement"},
		{"both fail", fakeConn{pollErr: failure, messageErr: failure, message: time.Second}, time.Second, 1,
			"poll: the plugin has returned an error; stream: the plugin has returned an error"},
		{"no message", fakeConn{pollErr: unimplemented, message: never}, 5 * time.Second, 1, "stream: the plugin does not"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				begun := time.Now()
				err := Probe(ctx, &tc.conn)
				if took := time.Since(begun); took != tc.takes {
					t.Errorf("took %s, want %s", took, tc.takes)
				}
				if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) ||
					err != nil && strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				synctest.Wait()
				if tc.conn.opened != tc.opened || tc.conn.open != 0 {
					t.Errorf("%d streams, of which %d are open, want %d", tc.conn.opened, tc.conn.open, tc.opened)
				}
			})
		})
	}
}

// A plugin over a real connection: one that answers, and one that implements nothing.
func TestProbeOverGRPC(t *testing.T) {
	probe := func(p *Plugin) error {
		return p.call(t.Context(), func(ctx context.Context, conn grpc.ClientConnInterface) error {
			return Probe(ctx, conn)
		})
	}
	if err := probe(serve(t, &server{answer: message("a")})); err != nil {
		t.Error(err)
	}
	if err := probe(serve(t, &server{err: status.Error(codes.Unimplemented, "")})); !errors.Is(
		err, reporter.ErrUnimplemented) {
		t.Errorf("got %v", err)
	}
	if err := probe(serve(t, &server{answer: message("\xff"), err: errors.New("secret")})); !errors.Is(
		err, errPluginError) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

// hanging is a plugin that answers no call.
type hanging struct {
	v1alpha1.UnimplementedReporterPluginServer
}

func (hanging) GetReportContent(ctx context.Context, _ *v1alpha1.Empty) (*v1alpha1.GetReportContentResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) ListAndWatchReportContent(
	_ *v1alpha1.Empty, stream grpc.ServerStreamingServer[v1alpha1.GetReportContentResponse],
) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

// streaming is a plugin that implements the stream only, and sends no second message.
type streaming struct {
	v1alpha1.UnimplementedReporterPluginServer
}

func (streaming) ListAndWatchReportContent(
	_ *v1alpha1.Empty, stream grpc.ServerStreamingServer[v1alpha1.GetReportContentResponse],
) error {
	if err := stream.Send(message("a")); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// token makes a call that the plugin answers, here with Unimplemented, and has a token for it.
func token(ctx context.Context, conn grpc.ClientConnInterface) (string, error) {
	if err := conn.Invoke(ctx, "/none", nil, &answer{}, callOptions()...); status.Code(err) != codes.Unimplemented {
		return "", err
	}
	return "token", nil
}

// R15 with the host that registers plugins: one that sends a message is accepted, one that answers no call is refused,
// with and without a token.
func TestR15OnlyPluginsThatAnswerAreRegistered(t *testing.T) {
	t.Parallel()
	for _, authentication := range []pluginhost.Authentication{pluginhost.SocketOwner, pluginhost.Token} {
		t.Run(string(authentication), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			streams, hangs := filepath.Join(dir, "s.sock"), filepath.Join(dir, "h.sock")
			serveAt(t, streams, streaming{})
			serveAt(t, hangs, hanging{})
			events := record.NewFakeRecorder(10)
			h := pluginhost.New(pluginhost.Config{
				Type: "ReporterPlugin", Version: "v1alpha1", Directories: []string{dir}, Probe: Probe,
				InTree: func(string) bool { return false }, Enabled: func(string) bool { return true },
				Authentication: func() pluginhost.Authentication { return authentication }, Owner: uint32(os.Geteuid()),
				Token: token, Review: func(context.Context, string, string) error { return nil },
				Clock: clock.RealClock{}, Recorder: events, Node: &v1.ObjectReference{Kind: "Node", Name: "n"},
			})
			t.Cleanup(h.Close)
			err := h.ValidatePlugin("h", hangs, []string{"v1alpha1"})
			if err == nil || !strings.Contains(err.Error(), "the plugin does not answer") || len(events.Events) != 1 {
				t.Errorf("got %v and %d events", err, len(events.Events))
			}
			if err := h.ValidatePlugin("s", streams, []string{"v1alpha1"}); err != nil {
				t.Error(err)
			}
		})
	}
}
