package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/await"
)

var errAPIServer = errors.New("the API server is away")

// tokenHost is a host under the authentication Token. The user of the token "good" may register each plugin.
type tokenHost struct {
	*testHost
	// reviews is how many there were, and away makes them fail.
	reviews atomic.Int32
	away    atomic.Bool
	// during is called within each review.
	during func()
}

func newTokenHost(t *testing.T) *tokenHost {
	t.Helper()
	h := &tokenHost{testHost: newHost(t), during: func() {}}
	h.authentication.Store(Token)
	h.cfg.Token = func(ctx context.Context, conn grpc.ClientConnInterface) (string, error) {
		answer, err := v1alpha1.NewEvictionPluginClient(conn).GetToken(ctx, &v1alpha1.Empty{})
		return answer.GetToken(), err
	}
	h.cfg.Review = func(_ context.Context, token, _ string) error {
		h.reviews.Add(1)
		h.during()
		switch {
		case h.away.Load():
			return errAPIServer
		case token == "other":
			return fmt.Errorf("%w: the reason", ErrNotPermitted)
		case token != "good":
			return fmt.Errorf("%w: the reason", ErrInvalidToken)
		}
		return nil
	}
	return h
}

// threshold makes the call ThresholdMet.
func threshold(t *testing.T, e *Endpoint) error {
	t.Helper()
	return e.Call(t.Context(), time.Minute, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := v1alpha1.NewEvictionPluginClient(conn).ThresholdMet(ctx, &v1alpha1.GetThresholdMetRequest{})
		return err
	})
}

// pass passes time, so that a call may cause a verification.
func (h *tokenHost) pass(d time.Duration) { h.clock.SetTime(h.clock.Now().Add(d)) }

// Each reason why a token is refused is one for the plugin, the event and the metric. Neither the token nor a text of
// the plugin is part of it. Not parallel: it reads counters of the process.
func TestRefusedTokens(t *testing.T) {
	const secret = "secret"
	failure := "no token beside " + secret
	for _, tc := range []struct {
		title, text string
		want        reason
		prepare     func(h *tokenHost, p *testPlugin)
	}{
		{"empty", "is empty", noToken, func(_ *tokenHost, p *testPlugin) { p.token = "" }},
		{"failure", "did not return its token: Internal", noToken, func(_ *tokenHost, p *testPlugin) {
			p.failure.Store(&failure)
		}},
		{"newline", "not a visible one", noToken, func(_ *tokenHost, p *testPlugin) { p.token = secret + "\n" }},
		{"64 KiB and a byte", "more than 65536 bytes", noToken, func(_ *tokenHost, p *testPlugin) {
			p.token = strings.Repeat("t", maxTokenBytes+1)
		}},
		{"4 MiB", "ResourceExhausted", noToken, func(_ *tokenHost, p *testPlugin) {
			p.token = strings.Repeat("t", 4<<20)
		}},
		{"invalid", "the API server does not accept the token: the reason", invalidToken, nil},
		{"of a user without permission", "may not register the plugin: the reason", notPermitted,
			func(_ *tokenHost, p *testPlugin) { p.token = "other" }},
		{"no API server", "could not be verified: the API server is away", reviewFailed,
			func(h *tokenHost, _ *testPlugin) { h.away.Store(true) }},
		{"reason with the token", "repeats the token", invalidToken, func(h *tokenHost, _ *testPlugin) {
			h.cfg.Review = func(_ context.Context, token, _ string) error { return fmt.Errorf("%w: %s", ErrInvalidToken, token) }
		}},
		{"standalone", "there is no API server", reviewFailed, func(h *tokenHost, _ *testPlugin) { h.cfg.Review = nil }},
		{"no call", "there is no API server", reviewFailed, func(h *tokenHost, _ *testPlugin) { h.cfg.Token = nil }},
	} {
		t.Run(tc.title, func(t *testing.T) {
			h := newTokenHost(t)
			p := serve(t, h.socket("p"), "p", secret)
			if tc.prepare != nil {
				tc.prepare(h, p)
			}
			before := refusalsOf(t, tc.want)
			err := h.ValidatePlugin("p", h.socket("p"), []string{"v1alpha1"})
			if refused := (*refusal)(nil); !errors.As(err, &refused) || refused.reason != tc.want ||
				!strings.Contains(refused.message, tc.text) {
				t.Fatalf("got %v, want %s", err, tc.want)
			}
			event := <-h.events
			if !strings.Contains(event, tc.text) || refusalsOf(t, tc.want) != before+1 {
				t.Errorf("the event %q, %v refusals", event, refusalsOf(t, tc.want)-before)
			}
			if all := fmt.Sprint(err, event, h.Refusals()); strings.Contains(all, secret) {
				t.Errorf("the token is in %s", all)
			}
		})
	}
}

// A plugin of an older protocol has no GetToken.
func TestPluginWithoutGetToken(t *testing.T) {
	h := newTokenHost(t)
	p := &withoutToken{}
	server := grpc.NewServer()
	v1alpha1.RegisterEvictionPluginServer(server, p)
	listener := listen(t, h.socket("p"))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-ended })
	err := h.ValidatePlugin("p", h.socket("p"), []string{"v1alpha1"})
	if refused := (*refusal)(nil); !errors.As(err, &refused) || refused.reason != noToken ||
		!strings.Contains(err.Error(), "does not implement GetToken") {
		t.Fatalf("got %v", err)
	}
	// Unimplemented is a failure here.
	h.authentication.Store(None)
	e := h.register(t, "p", h.socket("p"))
	h.authentication.Store(Token)
	if err := threshold(t, e); err == nil || status.Code(err) == codes.Unimplemented || e.Health().Failures != 1 {
		t.Errorf("got %v and %+v", err, e.Health())
	}
}

type withoutToken struct {
	v1alpha1.UnimplementedEvictionPluginServer
}

// A plugin that hangs in GetToken is refused within the time of a validation, or of a call.
func TestGetTokenThatHangs(t *testing.T) {
	t.Parallel()
	h := newTokenHost(t)
	p := serve(t, h.socket("p"), "p", "good")
	e := h.register(t, "p", h.socket("p"))
	p.hangs.Store(true)
	err := e.Call(t.Context(), 50*time.Millisecond, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := v1alpha1.NewEvictionPluginClient(conn).ThresholdMet(ctx, &v1alpha1.GetThresholdMetRequest{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "DeadlineExceeded") || p.thresholds.Load() != 0 {
		t.Errorf("got %v after %d calls", err, p.thresholds.Load())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	refused := h.validate(ctx, key{"p", h.socket("p")}, []string{"v1alpha1"})
	if refused == nil || refused.reason != noToken || !strings.Contains(refused.message, "DeadlineExceeded") {
		t.Errorf("got %v", refused)
	}
}

// A verification has its own time: calls that are shorter do not end it, and one of them is made when it has succeeded.
func TestVerificationThatTakesLongerThanACall(t *testing.T) {
	t.Parallel()
	h := newTokenHost(t)
	p := serve(t, h.socket("p"), "p", "good")
	e := h.register(t, "p", h.socket("p"))
	review, reviewed := h.cfg.Review, make(chan struct{})
	h.cfg.Review = func(ctx context.Context, token, plugin string) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-reviewed:
			return review(ctx, token, plugin)
		}
	}
	short := func() error {
		return e.Call(t.Context(), 50*time.Millisecond, func(ctx context.Context, conn grpc.ClientConnInterface) error {
			_, err := v1alpha1.NewEvictionPluginClient(conn).ThresholdMet(ctx, &v1alpha1.GetThresholdMetRequest{})
			return err
		})
	}
	for range 3 {
		if err := short(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
		h.pass(time.Second)
	}
	if n := p.calls.Load(); n != 2 {
		t.Errorf("%d tokens were asked for, want one at the registration and one at the connection", n)
	}
	close(reviewed)
	await.True(t, "a call", func() bool { return short() == nil })
	if n := p.calls.Load(); n != 2 {
		t.Errorf("%d tokens were asked for", n)
	}
}

// A verification ends with its endpoint.
func TestVerificationOfRemovedPluginEnds(t *testing.T) {
	t.Parallel()
	h := newTokenHost(t)
	p := serve(t, h.socket("p"), "p", "good")
	e := h.register(t, "p", h.socket("p"))
	p.hangs.Store(true)
	result := make(chan error)
	go func() { result <- threshold(t, e) }()
	await.True(t, "a verification", func() bool { return p.calls.Load() == 2 })
	h.DeRegisterPlugin("p", h.socket("p"))
	if err := <-result; err == nil {
		t.Error("the call has succeeded")
	}
	h.Close()
}

// The largest token is accepted.
func TestTokenOf64KiB(t *testing.T) {
	h := newTokenHost(t)
	h.cfg.Review = func(_ context.Context, token, plugin string) error {
		if len(token) != maxTokenBytes || plugin != "p" {
			t.Errorf("%d bytes of the plugin %s", len(token), plugin)
		}
		return nil
	}
	serve(t, h.socket("p"), "p", strings.Repeat("t", maxTokenBytes))
	if err := threshold(t, h.register(t, "p", h.socket("p"))); err != nil {
		t.Error(err)
	}
}

// A connection is verified once, before its first call.
func TestConnectionIsVerifiedOnce(t *testing.T) {
	h := newTokenHost(t)
	h.cfg.Owner++ // the process may run as any user
	p := serve(t, h.socket("p"), "p", "good")
	e := h.register(t, "p", h.socket("p"))
	if n := h.reviews.Load(); n != 1 {
		t.Errorf("%d reviews at the registration, want 1", n)
	}
	h.during = func() {
		if n := p.thresholds.Load(); n != 0 {
			t.Errorf("%d calls before the end of the verification", n)
		}
	}
	for range 10 {
		if err := threshold(t, e); err != nil {
			t.Error(err)
		}
		h.pass(time.Hour)
	}
	if reviews, calls := h.reviews.Load(), p.thresholds.Load(); reviews != 2 || calls != 10 {
		t.Errorf("%d reviews and %d calls, want 2 and 10", reviews, calls)
	}
}

// A process that takes the socket over is not called, unless it has a token with permission.
func TestTakenOverSocket(t *testing.T) {
	t.Parallel()
	h := newTokenHost(t)
	p := serve(t, h.socket("p"), "p", "good")
	e := h.register(t, "p", h.socket("p"))
	must(t, threshold(t, e))
	p.die()
	must(t, os.Remove(h.socket("p")))
	foreign := serve(t, h.socket("p"), "p", "other")
	await.True(t, "a refusal", func() bool {
		h.pass(maxSuspension)
		err := threshold(t, e)
		return err != nil && strings.Contains(err.Error(), "may not register")
	})
	health := e.Health()
	if health.Failures == 0 || !strings.Contains(health.LastError, "may not register") {
		t.Errorf("got %+v", health)
	}
	// The verification is not repeated at once.
	reviews := h.reviews.Load()
	for range 10 {
		if err := threshold(t, e); !errors.Is(err, ErrUnverified) && !errors.Is(err, ErrSuspended) {
			t.Errorf("got %v", err)
		}
	}
	if n := h.reviews.Load() - reviews; n != 0 || e.Health() != health {
		t.Errorf("%d reviews, and %+v instead of %+v", n, e.Health(), health)
	}
	// Five failures in a row suspend the plugin.
	await.True(t, "suspension", func() bool {
		h.pass(maxRedial)
		return errors.Is(threshold(t, e), ErrSuspended)
	})
	if calls := foreign.thresholds.Load(); calls != 0 {
		t.Errorf("%d calls of a process without permission", calls)
	}
	foreign.die()
	must(t, os.Remove(h.socket("p")))
	serve(t, h.socket("p"), "p", "good")
	await.True(t, "a call of the plugin", func() bool { h.pass(maxSuspension); return threshold(t, e) == nil })
}

// The process at the socket may change between the verification and the call.
func TestSocketTakenOverDuringTheVerification(t *testing.T) {
	t.Parallel()
	h := newTokenHost(t)
	p := serve(t, h.socket("p"), "p", "good")
	e := h.register(t, "p", h.socket("p"))
	var foreign *testPlugin
	h.during = func() {
		if foreign != nil {
			return
		}
		p.die()
		must(t, os.Remove(h.socket("p")))
		foreign = serve(t, h.socket("p"), "p", "other")
	}
	await.True(t, "a refusal", func() bool {
		h.pass(maxSuspension)
		err := threshold(t, e)
		return err != nil && strings.Contains(err.Error(), "may not register")
	})
	if calls := foreign.thresholds.Load(); calls != 0 {
		t.Errorf("%d calls of a process without permission", calls)
	}
}

// Without the API server a new connection is not called, and it is as soon as the token can be verified.
func TestAPIServerAwayAtReconnection(t *testing.T) {
	t.Parallel()
	h := newTokenHost(t)
	p := serve(t, h.socket("p"), "p", "good")
	e := h.register(t, "p", h.socket("p"))
	h.away.Store(true)
	if err := threshold(t, e); err == nil || !strings.Contains(err.Error(), "could not be verified") {
		t.Errorf("got %v", err)
	}
	h.away.Store(false)
	h.pass(minRedial - 1)
	if err := threshold(t, e); !errors.Is(err, ErrUnverified) || e.Health().Failures != 1 {
		t.Errorf("got %v and %+v", err, e.Health())
	}
	h.pass(1)
	if err := threshold(t, e); err != nil || p.thresholds.Load() != 1 || e.Health().Failures != 0 {
		t.Errorf("got %v, %d calls and %+v", err, p.thresholds.Load(), e.Health())
	}
	// While the connection lasts, the plugin is called without the API server.
	h.away.Store(true)
	h.pass(time.Hour)
	must(t, threshold(t, e))
}

// A change of the authentication verifies all connections, also those that were made before.
func TestAuthenticationChangesToToken(t *testing.T) {
	t.Parallel()
	for name, recheck := range map[string]bool{"recheck": true, "before the recheck": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTokenHost(t)
			h.authentication.Store(SocketOwner)
			h.Recheck()
			good, bad := serve(t, h.socket("good"), "good", "good"), serve(t, h.socket("bad"), "bad", "other")
			for _, name := range []string{"good", "bad"} {
				must(t, threshold(t, h.register(t, name, h.socket(name))))
			}
			h.authentication.Store(Token)
			if recheck {
				h.Recheck()
			}
			endpoints := h.Endpoints()
			if err := threshold(t, endpoints[0]); err == nil || !strings.Contains(err.Error(), "may not register") {
				t.Errorf("got %v", err)
			}
			must(t, threshold(t, endpoints[1]))
			if bad, good := bad.thresholds.Load(), good.thresholds.Load(); bad != 1 || good != 2 {
				t.Errorf("%d calls without permission and %d with it", bad, good)
			}
			h.authentication.Store(None)
			h.Recheck()
			for _, e := range h.Endpoints() {
				must(t, threshold(t, e))
			}
			if n := h.reviews.Load(); n != 2 {
				t.Errorf("%d reviews, want 2", n)
			}
		})
	}
}

// Streams are calls too.
func TestStreamOverUnverifiedConnection(t *testing.T) {
	t.Parallel()
	h := newTokenHost(t)
	p := serve(t, h.socket("p"), "p", "good")
	e := h.register(t, "p", h.socket("p"))
	begin := func() error {
		return e.Call(t.Context(), time.Minute, func(ctx context.Context, conn grpc.ClientConnInterface) error {
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true},
				v1alpha1.EvictionPlugin_ThresholdMet_FullMethodName)
			if err != nil {
				return err
			}
			if err := stream.SendMsg(&v1alpha1.GetThresholdMetRequest{}); err != nil {
				return err
			}
			must(t, stream.CloseSend())
			return stream.RecvMsg(&v1alpha1.ThresholdMetResponse{})
		})
	}
	h.away.Store(true)
	if err := begin(); err == nil || p.thresholds.Load() != 0 {
		t.Errorf("got %v after %d calls", err, p.thresholds.Load())
	}
	h.away.Store(false)
	h.pass(minRedial)
	if err := begin(); err != nil || p.thresholds.Load() != 1 {
		t.Errorf("got %v after %d calls", err, p.thresholds.Load())
	}
}

// Verifications of one plugin follow each other after 1 s to 30 s, however often its connections end.
func TestTimesOfVerifications(t *testing.T) {
	v := &verification{}
	begin := time.Unix(1e9, 0)
	var got []time.Duration
	for at := time.Duration(0); at < 2*time.Minute; at += 500 * time.Millisecond {
		if v.begin(begin.Add(at)) {
			got = append(got, at/time.Second)
		}
	}
	if want := []time.Duration{0, 1, 3, 7, 15, 31, 61, 91}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %d, want %d", got, want)
	}
	if later := begin.Add(151 * time.Second); !v.begin(later) || v.begin(later) || !v.begin(later.Add(time.Second)) {
		t.Error("the time between two verifications is not a second again after a minute without one")
	}
}

// Close waits for connections of validations, and no validation begins afterwards.
func TestNoTokenIsAskedForAfterClose(t *testing.T) {
	h := newTokenHost(t)
	p := serve(t, h.socket("p"), "p", "good")
	must(t, h.ValidatePlugin("p", h.socket("p"), []string{"v1alpha1"}))
	h.Close()
	if err := h.ValidatePlugin("p", h.socket("p"), []string{"v1alpha1"}); err == nil || p.calls.Load() != 1 {
		t.Errorf("got %v after %d calls", err, p.calls.Load())
	}
}
