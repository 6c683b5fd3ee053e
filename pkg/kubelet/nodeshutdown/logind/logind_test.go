package logind

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
	"github.com/plimsoll-project/plimsoll/test/await"
)

func connect(t *testing.T) nodeshutdown.Logind {
	t.Helper()
	logind, err := Connect(clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return logind
}

func TestLock(t *testing.T) {
	b := resetBus(t)
	lock, err := connect(t).Inhibit()
	if err != nil {
		t.Fatal(err)
	}
	n := b.count() - 1
	b.locked(func() {
		if want := "shutdown kubelet Kubelet needs time to handle node shutdown delay"; b.requests[0] != want {
			t.Errorf("asked for %q, want %q", b.requests[0], want)
		}
	})
	if !b.held(t, n) {
		t.Error("the lock is not held")
	}
	if err := lock.Close(); err != nil || b.held(t, n) {
		t.Errorf("the lock is held after it was closed, error %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestLockDuringAShutdown(t *testing.T) {
	b := resetBus(t)
	b.locked(func() { b.rejectLocks = true })
	if lock, err := connect(t).Inhibit(); !errors.Is(err, nodeshutdown.ErrShutdownInProgress) || lock != nil {
		t.Errorf("got %v, %v", lock, err)
	}
}

func TestEnsureInhibitDelay(t *testing.T) {
	for name, tc := range map[string]struct {
		delay, reloadedDelay, want time.Duration
		override                   error
		reloads                    int
		message                    string
	}{
		"enough": {delay: 30 * time.Second, want: 30 * time.Second},
		"more":   {delay: time.Minute, want: time.Minute},
		"raised": {delay: 5 * time.Second, reloadedDelay: 30 * time.Second, want: 30 * time.Second, reloads: 1},
		"another file": {delay: 5 * time.Second, reloadedDelay: 7 * time.Second, want: 7 * time.Second, reloads: 1,
			message: "InhibitDelayMaxSec is 7s and was not raised to 30s"},
		"cannot be written": {delay: 5 * time.Second, reloadedDelay: 30 * time.Second, want: 5 * time.Second,
			override: errors.New("read-only"), message: "read-only"},
	} {
		b := resetBus(t)
		b.locked(func() { b.delay, b.reloadedDelay = tc.delay, tc.reloadedDelay })
		logind := connect(t).(connection)
		var written time.Duration
		logind.override = func(d time.Duration) error { written = d; return tc.override }
		got, err := logind.EnsureInhibitDelay(t.Context(), 30*time.Second)
		var reloads int
		b.locked(func() { reloads = b.reloads })
		if got != tc.want || reloads != tc.reloads || (err == nil) != (tc.message == "") || err != nil &&
			!strings.Contains(err.Error(), tc.message) {
			t.Errorf("%s: granted %v after %d reloads, error %v", name, got, reloads, err)
		}
		if tc.delay < 30*time.Second && written != 30*time.Second {
			t.Errorf("%s: wrote %v", name, written)
		}
	}
}

func TestWatch(t *testing.T) {
	b := resetBus(t)
	b.locked(func() { *b.shuttingDown = true })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	shutdowns, err := connect(t).Watch(ctx)
	if err != nil || !shutdowns.Known || !shutdowns.ShuttingDown {
		t.Fatalf("state %+v, error %v", shutdowns, err)
	}
	for _, want := range []bool{true, false, true} {
		b.sendSignal(t, "nonsense")
		b.sendSignal(t)
		b.announce(t, want)
		if got := <-shutdowns.Events; got != want {
			t.Errorf("event %t, want %t", got, want)
		}
	}
	b.disconnectAll()
	if _, connected := <-shutdowns.Events; connected {
		t.Error("still connected")
	}
	// The next call uses a new connection.
	b.locked(func() { b.shuttingDown = nil })
	var again nodeshutdown.ShutdownEvents
	// The subscription may end before the connection counts as closed.
	await.True(t, "a new connection", func() bool {
		again, err = connect(t).Watch(ctx)
		return err == nil || !errors.Is(err, dbus.ErrClosed)
	})
	if err != nil || again.Known {
		t.Errorf("state %+v, error %v", again, err)
	}
	// A subscription that has ended does not block the others.
	other, stop := context.WithCancel(t.Context())
	defer stop()
	another, err := connect(t).Watch(other)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for _, want := range []bool{true, false, true, false} {
		b.announce(t, want)
		if got := <-another.Events; got != want {
			t.Errorf("event %t, want %t", got, want)
		}
	}
}

func TestNoBus(t *testing.T) {
	system.disconnectAll()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/missing/bus")
	eventually(t, "no connection", func() bool {
		_, err := Connect(clock.RealClock{})
		return err != nil && strings.Contains(err.Error(), "system bus")
	})
}
