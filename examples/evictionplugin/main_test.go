package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/await"
)

// socketVariable is set in the process of the example: this test's executable, which then runs main.
const socketVariable = "EXAMPLE_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(socketVariable); socket != "" {
		os.Args = []string{"evictionplugin", "-socket", socket}
		main()
	}
	os.Exit(m.Run())
}

// The example registers, and requests the pods with its annotation.
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
	if err != nil || info.GetType() != "EvictionPlugin" || info.GetName() != "example" || info.GetEndpoint() != "" {
		t.Errorf("GetInfo: %v, %v", info, err)
	}
	asked := encoded(t, &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "a", Annotations: map[string]string{"example.com/evict": "not needed"},
	}})
	other := encoded(t, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "b"}})
	answer, err := v1alpha1.NewEvictionPluginClient(conn).GetEvictPods(t.Context(),
		&v1alpha1.GetEvictPodsRequest{ActivePods: [][]byte{other, asked}})
	if err != nil || len(answer.GetEvictPods()) != 1 {
		t.Fatalf("GetEvictPods: %v, %v", answer, err)
	}
	if pod := answer.GetEvictPods()[0]; !bytes.Equal(pod.GetPod(), asked) || pod.GetReason() != "not needed" ||
		!pod.GetForceEvict() {
		t.Errorf("GetEvictPods: %v", pod)
	}
}

func encoded(t *testing.T, pod *v1.Pod) []byte {
	t.Helper()
	data, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
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
