package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubewharf/katalyst-api/pkg/protocol/reporterplugin/v1alpha1"
)

// The reporter plugin registers, answers polls and sends messages as its control file says, and ends its stream.
func TestReporterPlugin(t *testing.T) {
	dir := t.TempDir()
	calls := &callFile{name: filepath.Join(dir, "calls")}
	p := &reporterPlugin{name: "reporter", control: filepath.Join(dir, "control.json"), calls: calls}
	socket := filepath.Join(dir, "reporter.sock")
	write(t, p.control, `{"serve": true}`)
	stop, stopped := make(chan os.Signal, 1), make(chan error, 1)
	go func() { stopped <- run(stop, p, p.control, dir) }()

	until(t, "the socket appears", func() bool { return exists(socket) })
	conn := dial(t, socket)
	info, err := registration.NewRegistrationClient(conn).GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil || info.Type != "ReporterPlugin" || info.Name != "reporter" || info.Endpoint != "" {
		t.Errorf("GetInfo: %v, %v", info, err)
	}
	client := v1alpha1.NewReporterPluginClient(conn)
	if _, err := client.GetReportContent(t.Context(), &v1alpha1.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("GetReportContent without an answer: %v", err)
	}
	stream, err := client.ListAndWatchReportContent(t.Context(), &v1alpha1.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	const labels = `[{"version": "v1", "kind": "Node", "fields": [
		{"type": "Metadata", "name": "Labels", "value": {"a": "b"}}]}]`
	for _, answers := range []string{
		`{"serve": true, "stream": ` + labels + `}`, `{"serve": true, "stream": [], "poll": ` + labels + `}`,
	} {
		write(t, p.control, answers)
		message, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(message.Content) == 0 {
			message, err = client.GetReportContent(t.Context(), &v1alpha1.Empty{})
		}
		if err != nil || len(message.Content) != 1 || message.Content[0].GroupVersionKind.Kind != "Node" ||
			message.Content[0].Field[0].FieldType != v1alpha1.FieldType_Metadata ||
			string(message.Content[0].Field[0].Value) != `{"a": "b"}` {
			t.Errorf("answer %v, %v", message, err)
		}
	}
	write(t, p.control, `{"serve": true, "endStream": 1}`)
	if message, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a stream that has ended: %v, %v", message, err)
	}
	stop <- syscall.SIGTERM
	if err := <-stopped; err != nil || exists(socket) {
		t.Errorf("stopped with %v, socket there: %v", err, exists(socket))
	}
}
