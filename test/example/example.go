// Package example tests the examples: each is run as a process of its own, by its test's executable.
package example

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// socketVariable is set in the process of the example.
const socketVariable = "EXAMPLE_SOCKET"

// Main is TestMain of an example. It runs the function main of the example in the process that Start starts.
func Main(m *testing.M, main func()) {
	if socket := os.Getenv(socketVariable); socket != "" {
		os.Args = []string{"example", "-socket", socket}
		main()
		return
	}
	m.Run() // a test's executable exits with its result
}

// Start starts the example, and checks that it registers as a plugin of this type. It returns a connection to it.
func Start(t *testing.T, pluginType string) *grpc.ClientConn {
	t.Helper()
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
	if err != nil || info.GetType() != pluginType || info.GetName() != "example" || info.GetEndpoint() != "" {
		t.Errorf("GetInfo: %v, %v", info, err)
	}
	return conn
}

// CheckDocument checks that the document shows the program as it is, and that it is short enough to be copied.
func CheckDocument(t *testing.T) {
	t.Helper()
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
