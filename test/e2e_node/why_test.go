//go:build e2e

package e2enode

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/cmd/kubectl-pressure/app"
	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// runPressure runs kubectl pressure and returns what it writes and its exit code.
func (s *space) runPressure(args ...string) (out, messages string, code int) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	code = app.Run(s.ctx, append(args, "--kubeconfig", node.Layout().AdminConfig(), "--namespace", s.name),
		app.Streams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	return stdout.String(), stderr.String(), code
}

// kubectlPressure is runPressure of a command that succeeds, and whose output has all the parts.
func (s *space) kubectlPressure(command string, parts ...string) string {
	s.t.Helper()
	out, messages, code := s.runPressure(strings.Fields(command)...)
	if code != 0 {
		s.t.Fatalf("kubectl pressure %s: exit code %d\n%s%s", command, code, out, messages)
	}
	for _, part := range parts {
		if !strings.Contains(out, part) {
			s.t.Errorf("kubectl pressure %s: %q is not in:\n%s", command, part, out)
		}
	}
	return out
}

// TestWhyAPodWasEvicted takes the way of the README: pressure, why, trace, and a plan with a higher threshold.
func TestWhyAPodWasEvicted(t *testing.T) {
	s := spaceForRestart(t)
	s.restartKubelet(transitionPeriod(longTransition))
	s.ready(kit.IdlePod("neighbour"))
	evicted := s.pressure()

	began := time.Now()
	s.kubectlPressure("status", cluster.NodeName, "plimsoll")
	s.kubectlPressure("why "+evicted.Name, "was evicted from the node "+cluster.NodeName, "ran out of memory",
		"It was number 1 of", "Request at least", "kubectl pressure plan --node")
	trace := filepath.Join(t.TempDir(), "node.jsonl")
	s.must(os.WriteFile(trace, []byte(s.kubectlPressure("trace "+cluster.NodeName)), 0o600))
	same := s.kubectlPressure("plan --trace "+trace, evicted.Name, "Same", "The settings are those of the recording.")
	if strings.Contains(same, "others now") || strings.Contains(same, "could not be made again") {
		t.Errorf("the recorded decisions are not made again:\n%s", same)
	}
	picture := filepath.Join(t.TempDir(), "plan.svg")
	s.kubectlPressure("plan --trace "+trace+" --threshold memory.available=50% --svg "+picture, evicted.Name, "Earlier")
	if text, err := os.ReadFile(picture); err != nil || !bytes.Contains(text, []byte(evicted.Name)) {
		t.Errorf("the picture lacks the pod: %v", err)
	}
	s.kubectlPressure("plan --trace "+trace+" --threshold memory.available=1Mi", evicted.Name, "Spared")
	t.Logf("status, why, trace and three plans took %v", time.Since(began).Round(time.Millisecond))

	s.remove(evicted)
	s.endPressure()
}
