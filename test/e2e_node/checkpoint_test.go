//go:build e2e

package e2enode

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestContainerCheckpointEndpoint asks the kubelet to write containers to disk. What it refuses, it refuses by the codes and in the words
// of the upstream kubelet. Whether a container that runs can be written depends on a program, CRIU, that the runtime wants: what the
// runtime says about that is passed on.
func TestContainerCheckpointEndpoint(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("pod")
	pod.Spec.InitContainers = []v1.Container{kit.Container("first", "true")}
	s.ready(pod)
	waiting := kit.IdlePod("waiting")
	waiting.Spec.InitContainers = []v1.Container{kit.Container("first", kit.Forever)}
	s.wait(s.create(waiting), podTimeout, initRuns("first"))

	path := "/checkpoint/" + s.name + "/"
	s.answers(http.MethodGet, path+"pod/main", http.StatusMethodNotAllowed, "405: Method Not Allowed")
	s.answers(http.MethodPost, path+"nobody/main", http.StatusNotFound, "pod does not exist")
	s.answers(http.MethodPost, path+"pod/other", http.StatusNotFound, "container other does not exist")
	s.answers(http.MethodPost, path+"pod/main?timeout=soon", http.StatusNotFound, "cannot parse value of timeout parameter")
	s.answers(http.MethodPost, path+"pod/first", http.StatusInternalServerError, "checkpointing of "+s.name+"/pod/first failed (container first not found)")
	s.answers(http.MethodPost, path+"waiting/main", http.StatusInternalServerError, "checkpointing of "+s.name+"/waiting/main failed (container main not found)")
	if code, _, err := node.KubeletAsk(s.ctx, http.MethodPost, path+"pod/main", false); err != nil || code != http.StatusUnauthorized {
		t.Errorf("a stranger is answered %d, %v, want 401", code, err)
	}

	code, body, err := node.KubeletAsk(s.ctx, http.MethodPost, path+"pod/main", true)
	s.must(err)
	switch code {
	case http.StatusOK:
		s.wasWritten(body)
	case http.StatusInternalServerError:
		if want := "checkpointing of " + s.name + "/pod/main failed (rpc error: "; !strings.HasPrefix(string(body), want) {
			t.Errorf("the runtime could not write the container; the answer is %q, want %q at its beginning", body, want)
		}
	default:
		t.Errorf("the answer is %d: %s", code, body)
	}
	s.must(kit.Ready(s.get("pod")))
}

// answers checks what the kubelet answers to someone whom it trusts.
func (s *space) answers(method, path string, code int, text string) {
	s.t.Helper()
	got, body, err := node.KubeletAsk(s.ctx, method, path, true)
	s.must(err)
	if got != code || strings.TrimSpace(string(body)) != text {
		s.t.Errorf("%s %s is answered %d %q, want %d %q", method, path, got, body, code, text)
	}
}

// wasWritten checks that the archives are there that the answer names, and removes them.
func (s *space) wasWritten(answer []byte) {
	s.t.Helper()
	var written struct{ Items []string }
	s.must(json.Unmarshal(answer, &written))
	if len(written.Items) != 1 {
		s.t.Errorf("the answer names %v, want one archive", written.Items)
	}
	for _, file := range written.Items {
		s.must(os.Remove(file))
	}
}

// initRuns is a check for a pod whose init container of that name runs.
func initRuns(name string) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		status, err := container(pod, name)
		if err == nil && status.State.Running == nil {
			err = kit.IfEnded(pod, errors.New("not running: "+kit.Describe(pod)))
		}
		return err
	}
}
