package systembus

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
)

const unitName = "containerd-e2e.service"

// service notes what was asked of it.
type service struct {
	pid  int
	err  error
	done []string
}

func (s *service) PID() (int, error) { return s.pid, nil }

func (s *service) Start(context.Context) error {
	s.done = append(s.done, "start")
	return s.err
}

func (s *service) Stop(context.Context) error {
	s.done = append(s.done, "stop")
	return s.err
}

func TestUnitOfProcess(t *testing.T) {
	m := &manager{units: map[string]Service{unitName: &service{pid: 42}, "other.service": &service{}}}
	path, refused := m.unitByPID(42)
	if want := dbus.ObjectPath("/org/freedesktop/systemd1/unit/containerd_2de2e_2eservice"); refused != nil ||
		path != want || !path.IsValid() {
		t.Errorf("process 42 is of %q, %v, want %q", path, refused, want)
	}
	for _, pid := range []uint32{0, 41} {
		if path, refused := m.unitByPID(pid); refused == nil || refused.Name != "org.freedesktop.systemd1.NoUnitForPID" {
			t.Errorf("process %d is of %q, %v", pid, path, refused)
		}
	}
}

func TestJobsAnnounceHowTheyEnd(t *testing.T) {
	var log strings.Builder
	unit := &service{}
	var emitted []any
	m := &manager{units: map[string]Service{unitName: unit}, log: &log,
		emit: func(path dbus.ObjectPath, name string, values ...any) error {
			emitted = append([]any{path, name}, values...)
			return nil
		}}
	for i, c := range []struct {
		work   func(Service, context.Context) error
		err    error
		result string
		did    string
	}{
		{Service.Stop, nil, "done", "stop"},
		{Service.Start, errors.New("no such file"), "failed", "start"},
		{Service.Start, nil, "done", "start"},
	} {
		unit.err, emitted = c.err, nil
		job, refused := m.enqueue(t.Context(), unitName, c.work)
		m.jobs.Wait()
		if refused != nil || len(unit.done) != i+1 || unit.done[i] != c.did {
			t.Fatalf("%v, did %v, want %s", refused, unit.done, c.did)
		}
		want := []any{systemdPath, systemdIface + ".JobRemoved", uint32(i + 1), job, unitName, c.result}
		for j := range want {
			if len(emitted) != len(want) || emitted[j] != want[j] {
				t.Fatalf("emitted %v, want %v", emitted, want)
			}
		}
	}
	if want := "  unit " + unitName + ": no such file\n"; log.String() != want {
		t.Errorf("the log is %q, want %q", log.String(), want)
	}
}

func TestUnknownUnit(t *testing.T) {
	m := &manager{units: map[string]Service{unitName: &service{}}}
	if job, refused := m.enqueue(t.Context(), "docker.service", Service.Stop); refused == nil ||
		refused.Name != "org.freedesktop.systemd1.NoSuchUnit" {
		t.Errorf("job %q, %v", job, refused)
	}
}
