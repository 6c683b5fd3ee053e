package remote

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plimsoll-project/plimsoll/pkg/apis/reporterplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// server is a plugin that answers what a test sets. After its messages the stream ends with err.
type server struct {
	v1alpha1.UnimplementedReporterPluginServer
	answer   *v1alpha1.GetReportContentResponse
	messages []*v1alpha1.GetReportContentResponse
	err      error
}

func (s *server) GetReportContent(context.Context, *v1alpha1.Empty) (*v1alpha1.GetReportContentResponse, error) {
	return s.answer, s.err
}

func (s *server) ListAndWatchReportContent(
	_ *v1alpha1.Empty, stream grpc.ServerStreamingServer[v1alpha1.GetReportContentResponse],
) error {
	for _, m := range s.messages {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return s.err
}

// serve serves a plugin on a Unix socket and returns its adapter.
func serve(t *testing.T, s v1alpha1.ReporterPluginServer) *Plugin {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "p.sock")
	serveAt(t, socket, s)
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	call := func(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error {
		return call(ctx, conn)
	}
	return New(call, call)
}

// serveAt serves a plugin on a Unix socket until the end of the test.
func serveAt(t *testing.T, socket string, s v1alpha1.ReporterPluginServer) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	v1alpha1.RegisterReporterPluginServer(g, s)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := g.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		g.Stop()
		serving.Wait()
	})
}

func message(values ...string) *v1alpha1.GetReportContentResponse {
	content := &v1alpha1.ReportContent{
		GroupVersionKind: &v1alpha1.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"},
	}
	for _, v := range values {
		content.Field = append(content.Field, &v1alpha1.ReportField{
			FieldType: v1alpha1.FieldType_Status, FieldName: "Name", Value: []byte(v),
		})
	}
	return &v1alpha1.GetReportContentResponse{Content: []*v1alpha1.ReportContent{content}}
}

// text is the values of an answer, after a check of all else.
func text(t *testing.T, contents []merge.Content) string {
	t.Helper()
	var values []string
	for _, c := range contents {
		if c.Kind != (schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"}) {
			t.Errorf("got the kind %v", c.Kind)
		}
		for _, f := range c.Fields {
			if f.Part != merge.Status || f.Name != "Name" {
				t.Errorf("got the field %v %q", f.Part, f.Name)
			}
			values = append(values, string(f.Value))
		}
	}
	return strings.Join(values, " ")
}

func TestCalls(t *testing.T) {
	p := serve(t, &server{
		answer:   message("a", "b"),
		messages: []*v1alpha1.GetReportContentResponse{message("1"), {}, message("2", "3")},
	})
	contents, err := p.GetReportContent(t.Context())
	if got := text(t, contents); got != "a b" || err != nil {
		t.Errorf("poll: got %q, %v", got, err)
	}
	var got []string
	err = p.ListAndWatch(t.Context(), func(contents []merge.Content) { got = append(got, text(t, contents)) })
	if strings.Join(got, "|") != "1||2 3" || err != nil {
		t.Errorf("stream: got %q, %v", got, err)
	}
}

// Both calls return the errors of the contract.
func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		err, want error
	}{
		{status.Error(codes.Unimplemented, "no"), reporter.ErrUnimplemented},
		{status.Error(codes.Unavailable, "no"), reporter.ErrUnreachable},
		{status.Error(codes.ResourceExhausted, "no"), reporter.ErrTooLarge},
		{status.Error(codes.Internal, "no"), nil},
		{errors.New("no"), nil},
	} {
		p := serve(t, &server{err: tc.err})
		_, pollErr := p.GetReportContent(t.Context())
		streamErr := p.ListAndWatch(t.Context(), func([]merge.Content) { t.Error("a message") })
		for _, err := range []error{pollErr, streamErr} {
			if got := kind(err); err == nil || got != tc.want {
				t.Errorf("%v: got %v, want %v", tc.err, err, tc.want)
			}
		}
	}
	for err, want := range map[error]error{
		pluginhost.ErrSuspended: reporter.ErrSuspended, pluginhost.ErrUnverified: reporter.ErrNotCalled,
		pluginhost.ErrRemoved: reporter.ErrUnreachable, context.DeadlineExceeded: reporter.ErrUnreachable,
	} {
		call := func(context.Context, func(context.Context, grpc.ClientConnInterface) error) error { return err }
		if _, got := New(call, call).GetReportContent(t.Context()); kind(got) != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
}

// kind returns the error of the contract that is among the causes; nil if there is none.
func kind(err error) error {
	for _, k := range []error{
		reporter.ErrUnimplemented, reporter.ErrSuspended, reporter.ErrNotCalled, reporter.ErrUnreachable,
		reporter.ErrTooLarge,
	} {
		if errors.Is(err, k) {
			return k
		}
	}
	return nil
}

// Text of plugins is cut.
func TestErrorText(t *testing.T) {
	p := serve(t, &server{err: status.Error(codes.Internal, strings.Repeat("é", 10_000))})
	if _, err := p.GetReportContent(t.Context()); err == nil || len(err.Error()) > maxErrorText+20 {
		t.Errorf("got %v", err)
	}
}

// Both calls stop with their context, although the plugin goes on.
func TestContextEnds(t *testing.T) {
	s := &server{}
	for range 1000 {
		s.messages = append(s.messages, message("a"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := serve(t, s).ListAndWatch(ctx, func([]merge.Content) {
		n++
		cancel()
	})
	if n != 1 || !errors.Is(err, reporter.ErrUnreachable) {
		t.Errorf("got %d messages, %v", n, err)
	}
}

// Messages with more contents or fields than allowed, or more bytes, are refused; those at the limits are not.
func TestLimits(t *testing.T) {
	contents := func(n int) *v1alpha1.GetReportContentResponse {
		m := &v1alpha1.GetReportContentResponse{}
		for range n {
			m.Content = append(m.Content, &v1alpha1.ReportContent{})
		}
		return m
	}
	values := func(n, size int) *v1alpha1.GetReportContentResponse {
		return message(strings.Split(strings.Repeat(strings.Repeat("x", size)+" ", n-1)+strings.Repeat("x", size), " ")...)
	}
	nested := message("a")
	nested.Content = append(nested.Content, values(merge.MaxFields, 1).Content...)
	for _, tc := range []struct {
		name    string
		message *v1alpha1.GetReportContentResponse
		refused bool
	}{
		{"contents", contents(merge.MaxContents), false},
		{"too many contents", contents(merge.MaxContents + 1), true},
		{"very many contents", contents(100_000), true},
		{"fields", values(merge.MaxFields, 1), false},
		{"too many fields", values(merge.MaxFields+1, 1), true},
		{"too many fields in two contents", nested, true},
		{"bytes", values(merge.MaxFields, merge.MaxAnswerBytes/merge.MaxFields-10), false},
		{"too many bytes", values(3, maxMessage/3), true},
	} {
		p := serve(t, &server{answer: tc.message, messages: []*v1alpha1.GetReportContentResponse{tc.message}})
		got, err := p.GetReportContent(t.Context())
		if errors.Is(err, reporter.ErrTooLarge) != tc.refused || (got == nil) != tc.refused {
			t.Errorf("%s: got %d contents, %v", tc.name, len(got), err)
		}
		n := 0
		err = p.ListAndWatch(t.Context(), func(got []merge.Content) { n++ })
		if errors.Is(err, reporter.ErrTooLarge) != tc.refused || (n == 0) != tc.refused {
			t.Errorf("%s: got %d messages, %v", tc.name, n, err)
		}
	}
}

// Whatever a message holds, decoding does not panic and the result is within the limits of counts. A message that the
// codec proto accepts is decoded to the same.
func FuzzDecode(f *testing.F) {
	for _, m := range []*v1alpha1.GetReportContentResponse{{}, message(), message("a", "b")} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(append(data, 0x0a, 0xff))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		contents, err := decode(data)
		response := &v1alpha1.GetReportContentResponse{}
		if decodable := proto.Unmarshal(data, response) == nil; err == nil && !decodable {
			t.Error("decoded what is not valid")
		} else if err != nil {
			if decodable && !errors.Is(err, reporter.ErrTooLarge) {
				t.Errorf("not decoded: %v", err)
			}
			return
		}
		fields := 0
		for i, c := range contents {
			fields += len(c.Fields)
			if len(c.Fields) != len(response.Content[i].Field) {
				t.Errorf("content %d has %d fields", i, len(c.Fields))
			}
		}
		if len(contents) != len(response.Content) || len(contents) > merge.MaxContents || fields > merge.MaxFields {
			t.Errorf("got %d contents, %d fields", len(contents), fields)
		}
	})
}
