package logind

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
)

func connect(t *testing.T) nodeshutdown.Logind {
	t.Helper()
	logind, err := Connect(t.Context(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return logind
}

func TestLock(t *testing.T) {
	b := resetBus(t)
	lock, err := connect(t).Inhibit(t.Context())
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
	if lock, err := connect(t).Inhibit(t.Context()); !errors.Is(err, nodeshutdown.ErrShutdownInProgress) || lock != nil {
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
		// "infinity" is the largest number on the bus.
		"endless": {delay: -time.Microsecond, want: math.MaxInt64},
		"raised":  {delay: 5 * time.Second, reloadedDelay: 30 * time.Second, want: 30 * time.Second, reloads: 1},
		"another file": {delay: 5 * time.Second, reloadedDelay: 7 * time.Second, want: 7 * time.Second, reloads: 1,
			message: "InhibitDelayMaxSec is 7s and was not raised to 30s"},
		"cannot be written": {delay: 5 * time.Second, reloadedDelay: 30 * time.Second, want: 5 * time.Second,
			override: errors.New("read-only"), message: "read-only"},
		"none": {reloadedDelay: 30 * time.Second, override: errors.New("read-only"), message: "read-only"},
	} {
		b := resetBus(t)
		b.locked(func() { b.delay, b.reloadedDelay = tc.delay, tc.reloadedDelay })
		logind := connect(t).(connection)
		var written time.Duration
		logind.override = func(d time.Duration) error { written = d; return tc.override }
		got, err := logind.EnsureInhibitDelay(t.Context(), 30*time.Second)
		var reloads int
		b.locked(func() { reloads = b.reloads })
		if errors.Is(err, nodeshutdown.ErrDelayUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if got != tc.want || reloads != tc.reloads || (err == nil) != (tc.message == "") || err != nil &&
			!strings.Contains(err.Error(), tc.message) {
			t.Errorf("%s: granted %v after %d reloads, error %v", name, got, reloads, err)
		}
		if (tc.reloadedDelay > 0) != (written == 30*time.Second) {
			t.Errorf("%s: wrote %v", name, written)
		}
	}
}

func TestWatch(t *testing.T) {
	b := resetBus(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, err := connect(t).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false, true} {
		b.sendSignal(t, ownName, "nonsense")
		b.sendSignal(t, ownName)
		b.announce(t, want)
		if got := <-events; got != (nodeshutdown.Announcement{ShuttingDown: want, ByLogind: true}) {
			t.Errorf("event %+v, want %t of logind", got, want)
		}
		b.sendSignal(t, ":1.9", want)
		if got := <-events; got != (nodeshutdown.Announcement{ShuttingDown: want}) {
			t.Errorf("event %+v, want %t of somebody else", got, want)
		}
	}
	const restarted = ":1.7"
	b.locked(func() { b.owner = restarted })
	b.sendSignal(t, restarted, true)
	if got := <-events; got != (nodeshutdown.Announcement{ShuttingDown: true, ByLogind: true}) {
		t.Errorf("event %+v, want one of logind, which was restarted", got)
	}
	b.locked(func() { b.silent = "GetNameOwner" })
	b.sendSignal(t, ":1.10", true)
	if got := <-events; got != (nodeshutdown.Announcement{ShuttingDown: true}) {
		t.Errorf("event %+v of somebody else while the bus does not answer", got)
	}
	b.locked(func() { b.silent, b.owner = "", ownName })
	b.disconnectAll()
	if _, connected := <-events; connected {
		t.Error("still connected")
	}
	if _, err := connect(t).Watch(ctx); err != nil {
		t.Error(err)
	}
	// A subscription that has ended does not block the others.
	another, err := connect(t).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for _, want := range []bool{true, false, true, false} {
		b.announce(t, want)
		if got := <-another; got.ShuttingDown != want {
			t.Errorf("event %+v, want %t", got, want)
		}
	}
}

// A signal that is sent to this connection alone needs no subscription.
func TestAnotherSignal(t *testing.T) {
	b := resetBus(t)
	events, err := connect(t).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.sendNamed(t, "PrepareForSleep", ownName, true)
	b.announce(t, false)
	if got := <-events; got.ShuttingDown {
		t.Error("the announcement that the machine sleeps is taken for a shutdown")
	}
}

// Any program may attach a file to its signals.
func TestFilesOfSignalsAreClosed(t *testing.T) {
	b := resetBus(t)
	events, err := connect(t).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fd := dbus.UnixFD(writer.Fd())
	for _, value := range []any{fd, dbus.MakeVariant(fd), struct{ FD dbus.UnixFD }{fd}} {
		b.sendSignal(t, ":1.9", true, value)
		<-events
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := reader.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the file of the signal is still open: %v", err)
	}
}

func TestShuttingDown(t *testing.T) {
	b := resetBus(t)
	logind := connect(t)
	for _, want := range []bool{true, false} {
		b.locked(func() { *b.shuttingDown = want })
		if got, err := logind.ShuttingDown(t.Context()); err != nil || got != want {
			t.Errorf("got %t, %v, want %t", got, err, want)
		}
	}
	b.locked(func() { b.shuttingDown = nil })
	if got, err := logind.ShuttingDown(t.Context()); err == nil {
		t.Errorf("%t without the property", got)
	}
}

// If the connection is lost while a subscription begins, there is an error, or the channel is closed: otherwise the
// agent would miss each shutdown.
func TestConnectionIsLostWhileASubscriptionBegins(t *testing.T) {
	b := resetBus(t)
	for range 100 {
		logind := connect(t)
		b.locked(func() { b.breaks = "AddMatch" })
		events, err := logind.Watch(t.Context())
		b.locked(func() { b.breaks = "" })
		if err != nil {
			continue
		}
		if event, connected := <-events; connected {
			t.Fatalf("event %+v", event)
		}
	}
}

// Logind grants a lock after the call has ended without it. The lock is released: otherwise each shutdown would wait
// for it, as long as logind permits.
func TestLockThatIsGrantedTooLate(t *testing.T) {
	b := resetBus(t)
	defer resetBus(t)
	b.locked(func() { b.late = 20 * time.Millisecond })
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		logind, err := Connect(ctx, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		n := b.count()
		asked, stop := context.WithCancel(ctx)
		waits := 10*time.Millisecond + time.Duration(i)*time.Millisecond
		b.locked(func() { b.lockAsked = func() { time.AfterFunc(waits, stop) } })
		lock, err := logind.Inhibit(asked)
		stop()
		if err == nil {
			if err := lock.Close(); err != nil {
				t.Error(err)
			}
		}
		if i%2 == 0 {
			cancel() // The connection is closed, too.
		}
		eventually(t, "the lock is released", func() bool { return b.count() > n && !b.held(t, n) })
		cancel()
	}
}

// A signal that came before the connection was lost is an event.
func TestSignalBeforeTheConnectionIsLost(t *testing.T) {
	b := resetBus(t)
	for i := range 100 {
		events, err := connect(t).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.announce(t, true)
		b.disconnectAll()
		if _, ok := <-events; !ok {
			t.Fatalf("the %dth signal is lost", i+1)
		}
	}
}

// logind, or the bus, does not answer: each method returns when its context ends.
func TestNoAnswer(t *testing.T) {
	for silent, call := range map[string]func(context.Context, nodeshutdown.Logind) error{
		"AUTH": func(ctx context.Context, _ nodeshutdown.Logind) error {
			_, err := Connect(ctx, clock.RealClock{})
			return err
		},
		"Get": func(ctx context.Context, l nodeshutdown.Logind) error {
			_, err := l.EnsureInhibitDelay(ctx, time.Second)
			if !errors.Is(err, nodeshutdown.ErrDelayUnknown) {
				t.Errorf("error %v, want one that says that the delay is not known", err)
			}
			return err
		},
		"Inhibit": func(ctx context.Context, l nodeshutdown.Logind) error {
			_, err := l.Inhibit(ctx)
			return err
		},
		"AddMatch": func(ctx context.Context, l nodeshutdown.Logind) error {
			_, err := l.Watch(ctx)
			return err
		},
		"KillUnit": func(ctx context.Context, l nodeshutdown.Logind) error {
			_, err := l.EnsureInhibitDelay(ctx, 2*time.Hour)
			return err
		},
	} {
		t.Run(silent, func(t *testing.T) {
			b := resetBus(t)
			defer resetBus(t)
			logind := connect(t).(connection)
			logind.override = func(time.Duration) error { return nil }
			b.locked(func() { b.silent = silent })
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := call(ctx, logind); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestNoBus(t *testing.T) {
	system.disconnectAll()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/missing/bus")
	eventually(t, "no connection", func() bool {
		_, err := Connect(t.Context(), clock.RealClock{})
		return err != nil && strings.Contains(err.Error(), "system bus")
	})
}
