package pluginhost

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// E2: a plugin without permission is refused, although the rest of its registration is valid.
func TestE2ForeignOwnerIsRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.cfg.Owner++ // of another user than that of the tests
	h.watch(t)
	p := serve(t, h.socket("p"), "p", "t")
	status := <-p.statuses
	if status.PluginRegistered || !strings.Contains(status.Error, "runs as the user") {
		t.Errorf("got %v, want the refusal of a foreign owner", status)
	}
	if tokens := h.tokens(t); len(tokens) != 0 {
		t.Errorf("a plugin of a foreign owner answered: %q", tokens)
	}

	h.authentication.Store(None)
	h.Recheck()
	await.True(t, "registration without authentication", func() bool { return slices.Equal(h.tokens(t), []string{"t"}) })

	// Also the connections of plugins that are registered are authenticated.
	h.authentication.Store(SocketOwner)
	h.Recheck()
	if tokens := h.tokens(t); len(tokens) != 1 || !strings.Contains(tokens[0], "runs as the user") {
		t.Errorf("got %q after authentication was required again", tokens)
	}
	if calls := p.calls.Load(); calls != 1 {
		t.Errorf("the plugin was called %d times, want once while no authentication was required", calls)
	}
}

func TestE2OwnerIsAccepted(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.watch(t)
	p := serve(t, h.socket("p"), "p", "t")
	if status := <-p.statuses; !status.PluginRegistered {
		t.Error(status)
	}
	if tokens := h.tokens(t); !slices.Equal(tokens, []string{"t"}) {
		t.Errorf("got %q", tokens)
	}
}

// E3: a plugin that hangs delays neither registrations nor other plugins, and is called seldom.
func TestE3HangingPlugin(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.watch(t)
	hanging := serve(t, h.socket("hanging"), "hanging", "late")
	hanging.hangs.Store(true)
	if status := <-hanging.statuses; !status.PluginRegistered {
		t.Fatal(status)
	}
	e := h.Endpoints()[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { _, err := getToken(ctx, e, time.Hour); ended <- err }()
	await.True(t, "a call under way", func() bool { return hanging.calls.Load() == 1 })

	other := serve(t, h.socket("other"), "other", "prompt")
	if status := <-other.statuses; !status.PluginRegistered {
		t.Fatal(status)
	}
	if token, err := getToken(t.Context(), h.Endpoints()[1], time.Minute); token != "prompt" || err != nil {
		t.Errorf("another plugin answered %q, %v", token, err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the call did not end with its context")
	}
	if health := e.Health(); health.Failures != 0 {
		t.Errorf("a call that was given up counts: %+v", health)
	}
	suspends(t, h, e, hanging)
}

// suspends checks the attempts of a plugin whose calls time out.
func suspends(t *testing.T, h *testHost, e *Endpoint, p *testPlugin) {
	t.Helper()
	calls := p.calls.Load()
	try := func(wantSuspended bool) {
		t.Helper()
		before := p.calls.Load()
		_, err := getToken(t.Context(), e, 50*time.Millisecond)
		if suspended := errors.Is(err, ErrSuspended); err == nil || suspended != wantSuspended {
			t.Errorf("after %d calls: %v, want suspended: %t", before-calls, err, wantSuspended)
		}
		if called := p.calls.Load() > before; called == wantSuspended {
			t.Errorf("after %d calls: called: %t", before-calls, called)
		}
	}
	for range 5 {
		try(false)
	}
	wait := 30 * time.Second
	for range 2 {
		try(true)
		h.clock.SetTime(h.clock.Now().Add(wait - 1))
		try(true)
		h.clock.SetTime(h.clock.Now().Add(1))
		try(false)
		wait *= 2
	}
	health := e.Health()
	if health.Failures != 7 || health.LastError == "" || !health.SuspendedUntil.Equal(h.clock.Now().Add(wait)) {
		t.Errorf("got %+v", health)
	}
	p.hangs.Store(false)
	h.clock.SetTime(health.SuspendedUntil)
	for range 2 {
		if token, err := getToken(t.Context(), e, time.Minute); token != "late" || err != nil {
			t.Errorf("the plugin answered %q, %v", token, err)
		}
	}
	if health := e.Health(); health.Failures != 0 || !health.SuspendedUntil.IsZero() ||
		!health.LastSuccess.Equal(h.clock.Now()) {
		t.Errorf("after a success: %+v", health)
	}
}

// E4: an endpoint that was deregistered is not called again, although its process still serves.
func TestE4DeregisteredPluginIsNotCalled(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.watch(t)
	p := serve(t, h.socket("p"), "p", "t")
	if status := <-p.statuses; !status.PluginRegistered {
		t.Fatal(status)
	}
	e := h.Endpoints()[0]
	p.hangs.Store(true)
	ended := make(chan error, 1)
	go func() { _, err := getToken(t.Context(), e, time.Hour); ended <- err }()
	await.True(t, "a call under way", func() bool { return p.calls.Load() == 1 })

	if err := os.Remove(h.socket("p")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the call under way succeeded")
	}
	if endpoints := h.Endpoints(); len(endpoints) != 0 {
		t.Errorf("%d endpoints after the removal", len(endpoints))
	}
	err := e.Call(t.Context(), time.Minute, func(context.Context, grpc.ClientConnInterface) error {
		t.Error("called")
		return nil
	})
	if !errors.Is(err, ErrRemoved) {
		t.Errorf("got %v, want ErrRemoved", err)
	}
	if _, err := e.conn.NewStream(t.Context(), &grpc.StreamDesc{}, "/any"); err == nil {
		t.Error("the connection is open")
	}
	if calls := p.calls.Load(); calls != 1 {
		t.Errorf("called %d times, want once, before the removal", calls)
	}
}

// E5: a plugin is registered at two sockets; whichever is removed, the other one is called.
func TestE5SameNameOnTwoSockets(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		removedLast bool
		left        string
	}{{"old removed", false, "new"}, {"new removed", true, "old"}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			h.watch(t)
			var plugins []*testPlugin
			for _, token := range []string{"old", "new"} {
				p := serve(t, h.socket(token), "p", token)
				if status := <-p.statuses; !status.PluginRegistered {
					t.Fatal(status)
				}
				plugins = append(plugins, p)
			}
			if tokens := h.tokens(t); !slices.Equal(tokens, []string{"new"}) {
				t.Fatalf("got %q, want the one that was registered last", tokens)
			}
			if tc.removedLast {
				slices.Reverse(plugins)
			}
			plugins[0].stop()
			await.True(t, "deregistration", func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return len(h.registrations) == 1
			})
			if tokens := h.tokens(t); !slices.Equal(tokens, []string{tc.left}) {
				t.Errorf("got %q, want %s", tokens, tc.left)
			}
			plugins[1].stop()
			await.True(t, "deregistration", func() bool { return len(h.Endpoints()) == 0 })
		})
	}
}

// E6: a remote plugin does not take the name of a plugin in the tree.
func TestE6NameOfPluginInTreeIsRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.watch(t)
	p := serve(t, h.socket("p"), "memory-growth", "t")
	status := <-p.statuses
	if status.PluginRegistered || !strings.Contains(status.Error, "belongs to a plugin in the kubelet") {
		t.Errorf("got %v, want a refusal", status)
	}
	if endpoints := h.Endpoints(); len(endpoints) != 0 {
		t.Errorf("%d endpoints", len(endpoints))
	}
	if event := <-h.events; !strings.HasPrefix(event, `Warning PluginRefused EvictionPlugin "memory-growth" at`) {
		t.Errorf("got the event %s", event)
	}
}
