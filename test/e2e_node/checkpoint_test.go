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

// TestContainerCheckpointEndpoint requests checkpoints of containers. Errors have the codes and the texts of the stock
// kubelet. Whether a running container can be checkpointed depends on CRIU, which the runtime calls: its error is
// returned.
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
	s.answers(http.MethodPost, path+"missing/main", http.StatusNotFound, "pod does not exist")
	s.answers(http.MethodPost, path+"pod/other", http.StatusNotFound, "container other does not exist")
	s.answers(http.MethodPost, path+"pod/main?timeout=soon", http.StatusNotFound,
		"cannot parse value of timeout parameter")
	s.answers(http.MethodPost, path+"pod/first", http.StatusInternalServerError,
		"checkpointing of "+s.name+"/pod/first failed (container first not found)")
	s.answers(http.MethodPost, path+"waiting/main", http.StatusInternalServerError,
		"checkpointing of "+s.name+"/waiting/main failed (container main not found)")
	code, _, err := node.KubeletRequest(s.ctx, http.MethodPost, path+"pod/main", false)
	if err != nil || code != http.StatusUnauthorized {
		t.Errorf("a request without credentials returned %d, %v, want 401", code, err)
	}

	code, body, err := node.KubeletRequest(s.ctx, http.MethodPost, path+"pod/main", true)
	s.must(err)
	switch code {
	case http.StatusOK:
		s.wasWritten(body)
	case http.StatusInternalServerError:
		if want := "checkpointing of " + s.name + "/pod/main failed (rpc error: "; !strings.HasPrefix(string(body), want) {
			t.Errorf("the error of the runtime is returned as %q, want the prefix %q", body, want)
		}
	default:
		t.Errorf("the request returned %d: %s", code, body)
	}
	s.must(kit.Ready(s.get("pod")))
}

// answers checks the kubelet's response to an authorized request.
func (s *space) answers(method, path string, code int, text string) {
	s.t.Helper()
	got, body, err := node.KubeletRequest(s.ctx, method, path, true)
	s.must(err)
	if got != code || strings.TrimSpace(string(body)) != text {
		s.t.Errorf("%s %s returned %d %q, want %d %q", method, path, got, body, code, text)
	}
}

// wasWritten checks that the archive exists that the response names, and removes it.
func (s *space) wasWritten(answer []byte) {
	s.t.Helper()
	var written struct{ Items []string }
	s.must(json.Unmarshal(answer, &written))
	if len(written.Items) != 1 {
		s.t.Errorf("the response names %v, want one archive", written.Items)
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
