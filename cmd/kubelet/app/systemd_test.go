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

// fakeSystemd is the notification socket of systemd for a service of Type=notify.
type fakeSystemd struct {
	t          *testing.T
	connection *net.UnixConn
}

// startFakeSystemd sets the environment of such a service. With 0 there is no watchdog.
func startFakeSystemd(t *testing.T, watchdog time.Duration) fakeSystemd {
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
	return fakeSystemd{t, connection}
}

// next returns the next message; empty if there is none within limit.
func (s fakeSystemd) next(limit time.Duration) string {
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

// awaitMessage waits for a message, and skips others.
func (s fakeSystemd) awaitMessage(message string) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if s.next(time.Until(deadline)) == message {
			return
		}
	}
	s.t.Fatalf("no message %s", message)
}

// The unit is ready when the agent was created and runs, and not before.
func TestReadyNotification(t *testing.T) {
	built := make(chan struct{})
	withSteps(t, step{"runtime", func(*process, context.Context) error { <-built; return nil }})
	systemd := startFakeSystemd(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{settings: validSettings(t), newAgent: func(context.Context, kubelet.Dependencies) (Agent, error) {
		return agentFunc(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
	}}
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	if message := systemd.next(300 * time.Millisecond); message != "" {
		t.Errorf("message %q while the agent was being created", message)
	}
	close(built)
	systemd.awaitMessage("READY=1")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// fakeSyncLoop is a sync loop that is healthy or hangs.
type fakeSyncLoop struct{ hangs atomic.Bool }

func (l *fakeSyncLoop) SyncLoopHealthCheck(*http.Request) error {
	if l.hangs.Load() {
		return errors.New("sync loop hangs")
	}
	return nil
}

// systemd is notified from the start, before there is anything to check, until the sync loop hangs.
func TestWatchdogNotifications(t *testing.T) {
	systemd := startFakeSystemd(t, 1200*time.Millisecond)
	p := &process{settings: validSettings(t)}
	if err := p.watchdog(t.Context()); err != nil {
		t.Fatal(err)
	}
	systemd.awaitMessage("WATCHDOG=1")
	loop := &fakeSyncLoop{}
	p.deps.Observability.HealthChecker.SetHealthCheckers(loop, nil)
	systemd.awaitMessage("WATCHDOG=1")
	loop.hangs.Store(true)
	for systemd.next(50*time.Millisecond) != "" { // one may have been sent before
	}
	if message := systemd.next(1500 * time.Millisecond); message != "" {
		t.Errorf("message %q although the sync loop hangs", message)
	}
	loop.hangs.Store(false)
	systemd.awaitMessage("WATCHDOG=1")
}

// An invalid watchdog ends the start, because it would kill the agent repeatedly.
func TestInvalidWatchdog(t *testing.T) {
	for _, period := range []string{"1000000", "soon", "-1"} {
		t.Setenv("WATCHDOG_USEC", period)
		t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
		if err := (&process{settings: validSettings(t)}).watchdog(t.Context()); err == nil {
			t.Errorf("WATCHDOG_USEC=%s is accepted", period)
		}
	}
}
