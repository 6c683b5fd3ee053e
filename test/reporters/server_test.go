package reporters

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/reporterplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// server is a process at a socket that has a plugin.
type server struct {
	registration.UnimplementedRegistrationServer
	name, version string
	statuses      chan *registration.RegistrationStatus

	listener *net.UnixListener
	server   *grpc.Server
	served   sync.WaitGroup
}

// serve begins to serve a plugin at a socket, until the end of the test at most.
func serve(t *testing.T, socket, name, version string, service v1alpha1.ReporterPluginServer) *server {
	t.Helper()
	s, err := newServer(socket, name, version, service)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// newServer begins to serve a plugin at a socket.
func newServer(socket, name, version string, service v1alpha1.ReporterPluginServer) (*server, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	s := &server{
		name: name, version: version, listener: listener, server: grpc.NewServer(),
		statuses: make(chan *registration.RegistrationStatus, 100),
	}
	registration.RegisterRegistrationServer(s.server, s)
	v1alpha1.RegisterReporterPluginServer(s.server, service)
	s.served.Go(func() { _ = s.server.Serve(listener) })
	return s, nil
}

// stop ends the process and removes its socket.
func (s *server) stop() {
	s.server.Stop()
	s.served.Wait()
}

// crash ends the process and leaves the socket.
func (s *server) crash() {
	s.listener.SetUnlinkOnClose(false)
	s.stop()
}

func (s *server) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "ReporterPlugin", Name: s.name, SupportedVersions: []string{s.version}}, nil
}

func (s *server) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	select {
	case s.statuses <- status:
	default:
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// status is the result of the next registration.
func (s *server) status(t *testing.T) *registration.RegistrationStatus {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case status := <-s.statuses:
		return status
	case <-limit.C:
		t.Fatalf("no registration of %s", s.name)
		return nil
	}
}

// registered waits until the plugin is registered. On a machine that is busy it may be refused before: it has 5 s for
// an answer.
func (s *server) registered(t *testing.T) {
	t.Helper()
	for !s.status(t).GetPluginRegistered() {
	}
}

// service speaks the protocol for a plugin.
type service struct {
	v1alpha1.UnimplementedReporterPluginServer
	plugin reporter.Plugin
}

func (s *service) GetReportContent(
	ctx context.Context, _ *v1alpha1.Empty,
) (*v1alpha1.GetReportContentResponse, error) {
	contents, err := s.plugin.GetReportContent(ctx)
	return message(contents), answerError(err)
}

func (s *service) ListAndWatchReportContent(
	_ *v1alpha1.Empty, stream grpc.ServerStreamingServer[v1alpha1.GetReportContentResponse],
) error {
	return answerError(s.plugin.ListAndWatch(stream.Context(), func(contents []merge.Content) {
		_ = stream.Send(message(contents)) // the context of a stream that is broken has ended
	}))
}

func answerError(err error) error {
	if errors.Is(err, reporter.ErrUnimplemented) {
		return status.Error(codes.Unimplemented, "")
	}
	if errors.Is(err, errEnd) {
		return nil
	}
	return err
}

// errEnd is the error of a stream that the plugin ends without one.
var errEnd = errors.New("end")

func message(contents []merge.Content) *v1alpha1.GetReportContentResponse {
	m := &v1alpha1.GetReportContentResponse{}
	for _, c := range contents {
		content := &v1alpha1.ReportContent{GroupVersionKind: &v1alpha1.GroupVersionKind{
			Group: c.Kind.Group, Version: c.Kind.Version, Kind: c.Kind.Kind,
		}}
		for _, f := range c.Fields {
			content.Field = append(content.Field, &v1alpha1.ReportField{
				FieldType: v1alpha1.FieldType(f.Part), FieldName: f.Name, Value: f.Value,
			})
		}
		m.Content = append(m.Content, content)
	}
	return m
}
