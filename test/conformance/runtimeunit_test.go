package conformance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func unitOf(t *testing.T, p *process) *runtimeUnit {
	pid := func() (int, error) { return p.started, nil }
	return &runtimeUnit{runtime: p, pid: pid, pidFile: filepath.Join(t.TempDir(), "pid")}
}

// process is a container runtime that gets a new PID at each start.
type process struct {
	started int
	alive   bool
	broken  error
}

func (p *process) RuntimeAlive() (bool, error) { return p.alive, nil }

func (p *process) ReviveRuntime(context.Context) error {
	if p.broken == nil {
		p.started, p.alive = p.started+1, true
	}
	return p.broken
}

func (p *process) StopRuntime(context.Context) error {
	p.alive = false
	return nil
}

func TestRuntimeComesBackUnlessItWasStopped(t *testing.T) {
	p := &process{started: 1, alive: true}
	u := unitOf(t, p)
	if err := u.writePID(); err != nil {
		t.Fatal(err)
	}
	kill := func(context.Context) error {
		p.alive = false
		return nil
	}
	for _, step := range []struct {
		what    string
		do      func(context.Context) error
		alive   bool
		started int
	}{
		{"look while it is alive", u.keep, true, 1},
		{"start while it is alive", u.Start, true, 1},
		{"kill", kill, false, 1},
		{"look", u.keep, true, 2},
		{"stop", u.Stop, false, 2},
		{"look after the stop", u.keep, false, 2},
		{"stop again", u.Stop, false, 2},
		{"start", u.Start, true, 3},
		{"kill after the start", kill, false, 3},
		{"look after that", u.keep, true, 4},
	} {
		if err := step.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		data, err := os.ReadFile(u.pidFile)
		if p.alive != step.alive || p.started != step.started || err != nil || string(data) != strconv.Itoa(step.started) {
			t.Fatalf("%s: alive %v, process %d, PID file %q %v, want %v and %d",
				step.what, p.alive, p.started, data, err, step.alive, step.started)
		}
	}
}

func TestRuntimeThatDoesNotStartIsTriedAgain(t *testing.T) {
	p := &process{broken: errors.New("port taken")}
	u := unitOf(t, p)
	for _, try := range []func(context.Context) error{u.Start, u.keep} {
		if err := try(t.Context()); !errors.Is(err, p.broken) {
			t.Errorf("error %v, want %v", err, p.broken)
		}
	}
	p.broken = nil
	if err := u.keep(t.Context()); err != nil || !p.alive {
		t.Errorf("alive %v, error %v", p.alive, err)
	}
}
