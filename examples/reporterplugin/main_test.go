package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/reporterplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/await"
)

// socketVariable is set in the process of the example: this test's executable, which then runs main.
const socketVariable = "EXAMPLE_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(socketVariable); socket != "" {
		os.Args = []string{"reporterplugin", "-socket", socket}
		main()
	}
	os.Exit(m.Run())
}

// The example registers, and reports an annotation of the CustomNodeResource.
func TestExample(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "example.sock")
	if err := os.WriteFile(socket, nil, 0o600); err != nil { // what a process that was killed has left
		t.Fatal(err)
	}
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Env = append(os.Environ(), socketVariable+"="+socket)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	await.Until(t, "the socket appears", func() error {
		if info, err := os.Stat(socket); err != nil || info.Mode().Type() != os.ModeSocket {
			return errors.Join(errors.New("no socket"), err)
		}
		return nil
	})
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	// The socket exists a moment before the process listens.
	ready := grpc.WaitForReady(true)
	info, err := registration.NewRegistrationClient(conn).GetInfo(t.Context(), &registration.InfoRequest{}, ready)
	if err != nil || info.GetType() != "ReporterPlugin" || info.GetName() != "example" || info.GetEndpoint() != "" {
		t.Errorf("GetInfo: %v, %v", info, err)
	}
	answer, err := v1alpha1.NewReporterPluginClient(conn).GetReportContent(t.Context(), &v1alpha1.Empty{})
	if err != nil || len(answer.GetContent()) != 1 || len(answer.GetContent()[0].GetField()) != 1 {
		t.Fatalf("GetReportContent: %v, %v", answer, err)
	}
	kind, field := answer.GetContent()[0].GetGroupVersionKind(), answer.GetContent()[0].GetField()[0]
	if kind.GetGroup() != "node.katalyst.kubewharf.io" || kind.GetVersion() != "v1alpha1" ||
		kind.GetKind() != "CustomNodeResource" {
		t.Errorf("kind: %v", kind)
	}
	var annotations map[string]string
	if err := json.Unmarshal(field.GetValue(), &annotations); err != nil || len(annotations) != 1 ||
		annotations["example.com/kernel"] == "" || field.GetFieldType() != v1alpha1.FieldType_Metadata ||
		field.GetFieldName() != "Annotations" {
		t.Errorf("field: %v, %v", field, err)
	}
}

// The document shows the program as it is, and it is short enough to be copied.
func TestDocument(t *testing.T) {
	const name = "../../docs/writing-a-plugin.md"
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(document), "\n```go\n"+string(program)+"```\n") {
		t.Errorf("%s does not contain main.go as it is", name)
	}
	if lines := strings.Count(string(program), "\n"); lines > 60 {
		t.Errorf("main.go has %d lines, more than 60", lines)
	}
}
