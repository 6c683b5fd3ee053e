//go:build e2e

package e2enode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

func TestLogs(t *testing.T) {
	s := parallelSpace(t)
	pod := s.ready(kit.IdlePodThat("talker", "for i in 1 2 3; do echo line $i; done; sleep 1; echo problem >&2"))
	s.expectLog(pod, "line 1\nline 2\nline 3\nproblem")
	s.expect("last line", s.kubectl("logs", pod.Name, "--tail=1"), "problem")
	got := s.kubectl("logs", pod.Name, "--timestamps", "--tail=1")
	if !strings.HasSuffix(got, " problem") || !strings.HasPrefix(got, "20") {
		t.Errorf("log with time is %q", got)
	}
}

func TestLogsOfThePreviousContainer(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePodThat("restarts",
		"if [ -e /data/seen ]; then echo second; else echo first; touch /data/seen; exit 3; fi")
	mountEmptyDir(pod, "/data")
	created := s.wait(s.create(pod), podTimeout, restarted(1))
	s.wait(created, podTimeout, kit.Ready)
	s.expectLog(created, "second")
	s.expect("log of the previous container", s.kubectl("logs", created.Name, "--previous"), "first")
}

func TestExec(t *testing.T) {
	s := parallelSpace(t)
	pod := s.ready(kit.IdlePod("shell"))
	s.expect("output", s.sh(pod, "echo $((6 * 7))"), "42")

	withInput := s.kubectlCommand("exec", "-i", pod.Name, "--", "tr", "a-z", "A-Z")
	withInput.Stdin = strings.NewReader("hello")
	out, err := withInput.CombinedOutput()
	s.must(err)
	s.expect("output of a command that reads", string(out), "HELLO")

	err = s.kubectlCommand("exec", pod.Name, "--", "sh", "-c", "exit 7").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("a command that exits with 7 returned %v", err)
	}
}

func TestAttach(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("echo", "read line; echo got $line")
	pod.Spec.Containers[0].Stdin = true
	pod.Spec.Containers[0].StdinOnce = true
	created := s.wait(s.create(pod), podTimeout, kit.Ready)
	attach := s.kubectlCommand("attach", "-i", created.Name)
	attach.Stdin = strings.NewReader("words\n")
	if out, err := attach.CombinedOutput(); err != nil {
		t.Fatalf("attach: %v: %s", err, out)
	}
	s.wait(created, podTimeout, ended("Succeeded"))
	s.expectLog(created, "got words")
}

func TestCopy(t *testing.T) {
	s := parallelSpace(t)
	pod := s.ready(kit.IdlePod("files"))
	dir := t.TempDir()
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	content := strings.Repeat("0123456789abcdef", 1<<14)
	s.must(os.WriteFile(there, []byte(content), 0o644))
	s.kubectl("cp", there, pod.Name+":/tmp/file")
	s.kubectl("cp", pod.Name+":/tmp/file", back)
	data, err := os.ReadFile(back)
	s.must(err)
	if string(data) != content {
		t.Errorf("%d bytes came back of %d", len(data), len(content))
	}
}

func TestPortForward(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePodThat("server", "echo hello > /tmp/index.html; httpd -p 8080 -h /tmp")
	// kubectl ends when a connection is refused.
	tcp := v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(8080)}}
	pod.Spec.Containers[0].ReadinessProbe = probe(tcp)
	pod = s.ready(pod)
	forward := s.kubectlCommand("port-forward", pod.Name, ":8080")
	out, err := forward.StdoutPipe()
	s.must(err)
	s.must(forward.Start())
	t.Cleanup(func() {
		_ = forward.Process.Kill()
		_ = forward.Wait()
	})
	// Forwarding from 127.0.0.1:40001 -> 8080
	line, err := bufio.NewReader(out).ReadString('\n')
	s.must(err)
	address, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
	s.eventually(podTimeout, func(ctx context.Context) error { return bodyIs(ctx, "http://"+address+"/", "hello\n") })
}

// bodyIs is nil if a GET request of url returns that text.
func bodyIs(ctx context.Context, url, want string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && string(body) != want {
		err = fmt.Errorf("%s returned %q, want %q", url, body, want)
	}
	return err
}
