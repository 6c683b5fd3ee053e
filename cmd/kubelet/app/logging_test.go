package app

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	_ "unsafe" // linkname

	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
)

// asProgram makes the test binary run as the program: logging can be set up once in a process.
const asProgram = "APP_TEST_AS_PROGRAM"

//go:linkname reportedVersion k8s.io/component-base/version.dynamicGitVersion
var reportedVersion atomic.Value

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	reportedVersion.Store("v1.36.3")
	steps = nil // nothing of the node is touched
	program := Program{Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr, New: newLoggingAgent}
	os.Exit(program.Run(context.Background()))
}

// newLoggingAgent returns an agent that logs a few messages and ends.
func newLoggingAgent(context.Context, kubelet.Dependencies) (Agent, error) {
	return agentFunc(func(ctx context.Context) error {
		logger := klog.FromContext(ctx)
		logger.Info("Logged at 0", "pod", klog.KRef("ns", "name"), "count", 3)
		logger.V(5).Info("Logged at 5")
		return nil
	}), nil
}

// runLoggingAgent returns the program's standard error.
func runLoggingAgent(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append(args, "--fail-cgroupv1=false", "--fail-swap-on=false",
		"--authorization-mode=AlwaysAllow", "--authentication-token-webhook=false", "--anonymous-auth=true",
		"--container-runtime-endpoint=unix:///run/none.sock")...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	return errs.String()
}

func TestLogFormatJSON(t *testing.T) {
	type entry struct {
		Msg   string
		V     int
		Count int
		Pod   struct{ Name, Namespace string }
	}
	found := map[string]entry{}
	for line := range strings.Lines(runLoggingAgent(t, "--logging-format=json", "--v=2")) {
		if strings.HasPrefix(line, "Flag --") { // warnings of deprecated flags come before logging is set up, as in stock
			continue
		}
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("not JSON: %v: %s", err, line)
		}
		found[e.Msg] = e
	}
	if said := found["Logged at 0"]; said.Count != 3 || said.Pod.Name != "name" || said.Pod.Namespace != "ns" {
		t.Errorf("entry is %+v", said)
	}
	if _, quiet := found["Logged at 5"]; quiet || found["Started kubelet"].Msg == "" {
		t.Errorf("entries are %v", found)
	}
}

func TestLogFormatText(t *testing.T) {
	log := runLoggingAgent(t, "--v=5")
	for _, want := range []string{
		`(?m)^I\d{4} [0-9:.]+ +\d+ logging_test\.go:\d+\] "Logged at 0" pod="ns/name" count=3$`,
		`(?m)^I.*\] "Logged at 5"$`,
		`(?m)^I.*FLAG: --v="5"$`,
	} {
		if !regexp.MustCompile(want).MatchString(log) {
			t.Errorf("no line %s in\n%s", want, log)
		}
	}
}
