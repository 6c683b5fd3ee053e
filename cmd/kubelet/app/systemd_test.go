package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
)

// supervisor is the socket on which systemd hears from a service of Type=notify.
type supervisor struct {
	t          *testing.T
	connection *net.UnixConn
}

// underSupervisor gives the process the environment of such a service. A watchdog of 0 is none.
func underSupervisor(t *testing.T, watchdog time.Duration) supervisor {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	connection, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	if watchdog > 0 {
		t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
		t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	}
	return supervisor{t, connection}
}

// hears is the next message; empty when there is none within limit.
func (s supervisor) hears(limit time.Duration) string {
	s.t.Helper()
	if err := s.connection.SetReadDeadline(time.Now().Add(limit)); err != nil {
		s.t.Fatal(err)
	}
	buffer := make([]byte, 100)
	n, err := s.connection.Read(buffer)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.t.Fatal(err)
	}
	return string(buffer[:n])
}

// expect waits for a message; others may come before it.
func (s supervisor) expect(message string) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if s.hears(time.Until(deadline)) == message {
			return
		}
	}
	s.t.Fatalf("systemd never heard %s", message)
}

// The unit is ready once the agent is built and runs, and not before.
func TestReadyIsTold(t *testing.T) {
	built := make(chan struct{})
	withSteps(t, step{"runtime", func(*process, context.Context) error { <-built; return nil }})
	systemd := underSupervisor(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{settings: validSettings(t), newAgent: func(context.Context, kubelet.Dependencies) (Agent, error) {
		return agentFunc(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
	}}
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	if heard := systemd.hears(300 * time.Millisecond); heard != "" {
		t.Errorf("heard %q while the agent was being built", heard)
	}
	close(built)
	systemd.expect("READY=1")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// loopHealth is a sync loop that is well, or is not.
type loopHealth struct{ hangs atomic.Bool }

func (l *loopHealth) SyncLoopHealthCheck(*http.Request) error {
	if l.hangs.Load() {
		return errors.New("sync loop hangs")
	}
	return nil
}

// The watchdog is fed from the start, before there is anything to check, and is starved as soon as the sync loop hangs.
func TestWatchdogIsFedWhileWell(t *testing.T) {
	systemd := underSupervisor(t, 1200*time.Millisecond)
	p := &process{settings: validSettings(t)}
	if err := p.watchdog(t.Context()); err != nil {
		t.Fatal(err)
	}
	systemd.expect("WATCHDOG=1")
	loop := &loopHealth{}
	p.deps.Observability.HealthChecker.SetHealthCheckers(loop, nil)
	systemd.expect("WATCHDOG=1")
	loop.hangs.Store(true)
	for systemd.hears(50*time.Millisecond) != "" { // one may have been on its way
	}
	if heard := systemd.hears(1500 * time.Millisecond); heard != "" {
		t.Errorf("heard %q although the sync loop hangs", heard)
	}
	loop.hangs.Store(false)
	systemd.expect("WATCHDOG=1")
}

// A watchdog that is set up wrongly ends the start: it would kill the agent again and again.
func TestWrongWatchdog(t *testing.T) {
	for _, period := range []string{"1000000", "soon", "-1"} {
		t.Setenv("WATCHDOG_USEC", period)
		t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
		if err := (&process{settings: validSettings(t)}).watchdog(t.Context()); err == nil {
			t.Errorf("WATCHDOG_USEC=%s is accepted", period)
		}
	}
}
