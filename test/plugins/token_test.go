package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
)

var errAPIServerAway = errors.New("connection refused")

// tokens stand for the API server: "permitted" is the token of a user who may register each plugin, "valid" that of
// another user.
type tokens struct{ away atomic.Bool }

func (k *tokens) review(_ context.Context, token, _ string) error {
	switch {
	case k.away.Load():
		return errAPIServerAway
	case token == "permitted":
		return nil
	case token == "valid":
		return fmt.Errorf("%w: no rule", pluginhost.ErrNotPermitted)
	default:
		return fmt.Errorf("%w: it has expired", pluginhost.ErrInvalidToken)
	}
}

// withToken is a plugin that returns a token.
type withToken struct {
	service
	token string
}

func (p *withToken) GetToken(context.Context, *v1alpha1.Empty) (*v1alpha1.GetTokenResponse, error) {
	return &v1alpha1.GetTokenResponse{Token: p.token}, nil
}

func tokenRequired(o *plugin.Options) { o.Authentication = "Token" }

// newTokenRig returns a rig under the authentication Token, with a plugin p that does not run as root.
func newTokenRig(t *testing.T, token string, script *script) (*rig, *server) {
	t.Helper()
	r := newRig(t, tokenRequired, pods("a", "b")...)
	r.owner++
	return r, serve(t, r.socket("p"), "p", &withToken{service{script: script}, token})
}

func TestPermittedToken(t *testing.T) {
	t.Parallel()
	p := force("a")
	r, s := newTokenRig(t, "permitted", p)
	r.start()
	if status := s.status(t); !status.GetPluginRegistered() {
		t.Fatal(status)
	}
	r.scripts["p"] = p
	r.evicted("a/30")
	if h := r.row("p").Health; h.Failures != 0 || h.LastError != "" {
		t.Errorf("%+v", h)
	}
}

func TestE2RefusedTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ token, reason string }{
		"no token":      {"", "the token of the plugin is empty"},
		"invalid token": {"late", "the API server does not accept the token: it has expired"},
		"no permission": {"valid", "the token belongs to a user who may not register the plugin: no rule"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := force("a")
			r, s := newTokenRig(t, c.token, p)
			r.start()
			r.refused(s, p, c.reason)
		})
	}
	t.Run("no GetToken", func(t *testing.T) {
		t.Parallel()
		p := force("a")
		r := newRig(t, tokenRequired, pods("a")...)
		s := r.serve("p", p)
		r.start()
		r.refused(s, p, "does not implement GetToken")
	})
}

// TestTokenWithoutAPIServer: a plugin whose token cannot be verified is refused, and registers by itself when it can.
func TestTokenWithoutAPIServer(t *testing.T) {
	t.Parallel()
	p := force("a")
	r, s := newTokenRig(t, "permitted", p)
	r.tokens.away.Store(true)
	r.start()
	r.refused(s, p, "could not be verified: connection refused")
	r.tokens.away.Store(false)
	r.scripts["p"] = p
	r.evicted("a/30")
}

// TestReconnectionWithoutAPIServer: a process that was replaced is not called until its token can be verified. What the
// plugin requested ends meanwhile.
func TestReconnectionWithoutAPIServer(t *testing.T) {
	t.Parallel()
	p := &script{}
	r, s := newTokenRig(t, "permitted", p)
	r.start()
	if status := s.status(t); !status.GetPluginRegistered() {
		t.Fatal(status)
	}
	r.scripts["p"] = p
	r.called(1)
	r.tokens.away.Store(true)
	r.reload(func(o *plugin.Options) { o.Authentication = "SocketOwner" })
	r.reload(tokenRequired) // closes the connection
	p.set(func(s *script) { s.demand = force("a").demand })
	r.await("the failure of the verification", func() string {
		if h := r.row("p").Health; !strings.Contains(h.LastError, "could not be verified") {
			return fmt.Sprintf("%+v", h)
		}
		return ""
	})
	if killed := r.killed(); len(killed) != 0 {
		t.Errorf("requests %q", killed)
	}
	r.tokens.away.Store(false)
	r.evicted("a/30")
}

// TestE2TakenOverSocket: a process without permission that takes the socket of a plugin over is not called, whether it
// is registered anew or the connection is made again.
func TestE2TakenOverSocket(t *testing.T) {
	t.Parallel()
	p, foreign := &script{}, force("a")
	r, s := newTokenRig(t, "permitted", p)
	r.start()
	if status := s.status(t); !status.GetPluginRegistered() {
		t.Fatal(status)
	}
	r.scripts["p"] = p
	r.called(1)
	s.crash()
	if err := os.Remove(s.socket); err != nil {
		t.Fatal(err)
	}
	s = serve(t, s.socket, "p", &withToken{service{script: foreign}, "valid"})
	status := s.status(t)
	if status.GetPluginRegistered() || !strings.Contains(status.GetError(), "may not register") {
		t.Error(status)
	}
	q := &script{}
	serve(t, r.socket("q"), "q", &withToken{service{script: q}, "permitted"})
	r.calledOne("another plugin", q, 3)
	if n := foreign.called(); n != 0 || len(r.killed()) != 0 {
		t.Errorf("%d calls, requests %q", n, r.killed())
	}
}

// TestAuthenticationReloaded: a reload to Token verifies the plugins that are registered. One without permission is not
// called any more, one with permission is.
func TestAuthenticationReloaded(t *testing.T) {
	t.Parallel()
	p, q := &script{}, &script{}
	r := newRig(t, nil, pods("a", "b")...)
	for name, c := range map[string]struct {
		script *script
		token  string
	}{"p": {p, "valid"}, "q": {q, "permitted"}} {
		s := serve(t, r.socket(name), name, &withToken{service{script: c.script}, c.token})
		r.scripts[name] = c.script
		defer func() {
			if status := s.status(t); !status.GetPluginRegistered() {
				t.Error(status)
			}
		}()
	}
	r.start()
	r.called(1)
	r.reload(tokenRequired)
	p.set(func(s *script) { s.demand = force("a").demand })
	q.set(func(s *script) { s.demand = force("b").demand })
	delete(r.scripts, "p")
	r.evicted("b/30")
	calls := p.called() // one more may have been under way before the reload
	r.called(3)
	if n := p.called(); n > calls+1 || !strings.Contains(r.row("p").Health.LastError, "may not register") {
		t.Errorf("%d calls after the reload, %+v", n-calls, r.row("p").Health)
	}
}
