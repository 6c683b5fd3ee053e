package conformance

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A shell passes each argument on as it is.
func TestCommandOfTheMachine(t *testing.T) {
	focus := `--focus=^.*(a \$HOME "b" it's|\[c\] +d)$`
	line := machineCommand([]string{"--procs=2", focus})
	_, words, found := strings.Cut(line, " '/suite/bin/ginkgo' ")
	if !found {
		t.Fatalf("no ginkgo in %s", line)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s\\n' "+words).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	if got[0] != "--procs=2" || got[1] != focus || !slices.Contains(got, "/suite/bin/e2e_node.test") {
		t.Errorf("the arguments are %q", got)
	}
}

func TestSuiteInTheMachine(t *testing.T) {
	s := testSuite(t)
	s.Procs = 6
	first, err := s.InMachine(1)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.InMachine(2)
	if err != nil {
		t.Fatal(err)
	}
	if first.Party == second.Party || first.Party == s.Party {
		t.Errorf("results of different runs are kept together: %s, %s, %s", s.Party, first.Party, second.Party)
	}
	if s.procs() != 6 || first.procs() != 2 {
		t.Errorf("%d specs at a time on this machine, %d in the other", s.procs(), first.procs())
	}
	s.Cluster = true
	if _, err := s.InMachine(1); err == nil {
		t.Error("the machine has a suite for clusters")
	}
}

func TestOutcomeOfSeveralRounds(t *testing.T) {
	good, bad := Outcome{State: passed}, Outcome{State: "failed"}
	got := InEach([]Results{
		{"always": good, "first": good, "second": bad, "never": bad, "once": good},
		{"always": good, "first": bad, "second": good, "never": bad, "other": good},
	})
	want := Results{"always": good, "first": bad, "second": bad, "never": bad}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
