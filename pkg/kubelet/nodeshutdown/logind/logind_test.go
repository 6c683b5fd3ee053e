package logind

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
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
	b := fresh(t)
	lock, err := connect(t).Inhibit()
	if err != nil {
		t.Fatal(err)
	}
	n := b.count() - 1
	b.set(func() {
		if want := "shutdown kubelet Kubelet needs time to handle node shutdown delay"; b.asked[0] != want {
			t.Errorf("asked for %q, want %q", b.asked[0], want)
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

func TestTooLateForALock(t *testing.T) {
	b := fresh(t)
	b.set(func() { b.busy = true })
	if lock, err := connect(t).Inhibit(); !errors.Is(err, nodeshutdown.ErrGoingDown) || lock != nil {
		t.Errorf("got %v, %v", lock, err)
	}
}

func TestGrant(t *testing.T) {
	for name, tc := range map[string]struct {
		delay, raised, want time.Duration
		override            error
		reloads             int
		says                string
	}{
		"enough": {delay: 30 * time.Second, want: 30 * time.Second},
		"more":   {delay: time.Minute, want: time.Minute},
		"raised": {delay: 5 * time.Second, raised: 30 * time.Second, want: 30 * time.Second, reloads: 1},
		"another file": {delay: 5 * time.Second, raised: 7 * time.Second, want: 7 * time.Second, reloads: 1,
			says: "InhibitDelayMaxSec is 7s and was not raised to 30s"},
		"cannot be written": {delay: 5 * time.Second, raised: 30 * time.Second, want: 5 * time.Second,
			override: errors.New("read-only"), says: "read-only"},
	} {
		b := fresh(t)
		b.set(func() { b.delay, b.raised = tc.delay, tc.raised })
		logind := connect(t).(connection)
		var written time.Duration
		logind.override = func(d time.Duration) error { written = d; return tc.override }
		got, err := logind.Grant(t.Context(), 30*time.Second)
		var reloads int
		b.set(func() { reloads = b.reloads })
		if got != tc.want || reloads != tc.reloads || (err == nil) != (tc.says == "") || err != nil &&
			!strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: granted %v after %d reloads, error %v", name, got, reloads, err)
		}
		if tc.delay < 30*time.Second && written != 30*time.Second {
			t.Errorf("%s: wrote %v", name, written)
		}
	}
}

func TestWatch(t *testing.T) {
	b := fresh(t)
	b.set(func() { *b.goingDown = true })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heard, err := connect(t).Watch(ctx)
	if err != nil || !heard.Known || !heard.GoingDown {
		t.Fatalf("heard %+v, error %v", heard, err)
	}
	for _, down := range []bool{true, false, true} {
		b.say(t, "nonsense")
		b.say(t)
		b.announce(t, down)
		if got := <-heard.Events; got != down {
			t.Errorf("heard %t, want %t", got, down)
		}
	}
	b.hangUp()
	if _, connected := <-heard.Events; connected {
		t.Error("still connected")
	}
	// Afterwards there is a new connection.
	b.set(func() { b.goingDown = nil })
	again, err := connect(t).Watch(ctx)
	if err != nil || again.Known {
		t.Errorf("heard %+v, error %v", again, err)
	}
	// Who does not listen any more does not hold up the others.
	other, stop := context.WithCancel(t.Context())
	defer stop()
	another, err := connect(t).Watch(other)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for _, down := range []bool{true, false, true, false} {
		b.announce(t, down)
		if got := <-another.Events; got != down {
			t.Errorf("heard %t, want %t", got, down)
		}
	}
}

func TestNoBus(t *testing.T) {
	system.hangUp()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus")
	eventually(t, "no connection", func() bool {
		_, err := Connect(clock.RealClock{})
		return err != nil && strings.Contains(err.Error(), "system bus")
	})
}
