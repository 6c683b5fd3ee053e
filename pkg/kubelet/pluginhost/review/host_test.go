package review

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
)

// process is a plugin at a socket.
type process struct {
	v1alpha1.UnimplementedEvictionPluginServer
	token string
	calls atomic.Int32
}

func (p *process) GetToken(context.Context, *v1alpha1.Empty) (*v1alpha1.GetTokenResponse, error) {
	return &v1alpha1.GetTokenResponse{Token: p.token}, nil
}

func (p *process) ThresholdMet(
	context.Context, *v1alpha1.GetThresholdMetRequest,
) (*v1alpha1.ThresholdMetResponse, error) {
	p.calls.Add(1)
	return &v1alpha1.ThresholdMetResponse{}, nil
}

// node is a host under the authentication Token, with one plugin and the API server.
type node struct {
	*pluginhost.Host
	api    *api
	plugin *process
	socket string
	events chan string
}

func newNode(t *testing.T, token string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "plugins") // short: the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	recorder := record.NewFakeRecorder(10)
	n := &node{
		api: serveAPI(t), plugin: &process{token: token}, socket: filepath.Join(dir, "p.sock"), events: recorder.Events,
	}
	n.api.users["token-of-alice"], n.api.users["token-of-bob"] = alice, authenticationv1.UserInfo{Username: "bob"}
	n.api.permitted = []string{alice.Username}
	listener, err := net.Listen("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	v1alpha1.RegisterEvictionPluginServer(server, n.plugin)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	n.Host = pluginhost.New(pluginhost.Config{
		Type: "EvictionPlugin", Version: "v1alpha1", Directories: []string{dir},
		InTree: func(string) bool { return false }, Enabled: func(string) bool { return true },
		Authentication: func() pluginhost.Authentication { return pluginhost.Token },
		Token: func(ctx context.Context, conn grpc.ClientConnInterface) (string, error) {
			answer, err := v1alpha1.NewEvictionPluginClient(conn).GetToken(ctx, &v1alpha1.Empty{})
			return answer.GetToken(), err
		},
		Review: New(n.api.client(t, ""), EvictionPlugins).Review,
		Clock:  clock.RealClock{}, Recorder: recorder, Node: &v1.ObjectReference{Kind: "Node", Name: "n"},
	})
	t.Cleanup(func() { n.Close(); server.Stop(); served.Wait() })
	return n
}

func (n *node) validate() error { return n.ValidatePlugin("p", n.socket, []string{"v1alpha1"}) }

// call calls the plugin, which is registered.
func (n *node) call(t *testing.T) error {
	t.Helper()
	endpoints := n.Endpoints()
	if len(endpoints) != 1 {
		t.Fatalf("%d endpoints", len(endpoints))
	}
	return endpoints[0].Call(t.Context(), time.Minute, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := v1alpha1.NewEvictionPluginClient(conn).ThresholdMet(ctx, &v1alpha1.GetThresholdMetRequest{})
		return err
	})
}

// E2: the token is valid, and its user has no permission. The registration is refused.
func TestE2ValidTokenWithoutPermissionIsRefused(t *testing.T) {
	n := newNode(t, "token-of-bob")
	err := n.validate()
	if err == nil || !strings.Contains(err.Error(), "bob must be allowed to register") {
		t.Errorf("got %v", err)
	}
	if event := <-n.events; !strings.Contains(event, "bob must be allowed") || len(n.Endpoints()) != 0 {
		t.Errorf("got the event %s and %d endpoints", event, len(n.Endpoints()))
	}
}

// E2: a token with permission for the registration, and without at the connection.
func TestE2PermissionRevokedBeforeTheConnection(t *testing.T) {
	for name, revoke := range map[string]func(a *api){
		"no permission": func(a *api) { a.permitted = nil },
		"expired":       func(a *api) { delete(a.users, "token-of-alice") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "token-of-alice")
			if err := n.validate(); err != nil {
				t.Fatal(err)
			}
			if err := n.RegisterPlugin("p", n.socket, nil, nil); err != nil {
				t.Fatal(err)
			}
			n.api.set(func() { revoke(n.api) })
			if err := n.call(t); err == nil || n.plugin.calls.Load() != 0 {
				t.Errorf("got %v after %d calls", err, n.plugin.calls.Load())
			}
		})
	}
}

func TestPermittedPluginIsCalled(t *testing.T) {
	n := newNode(t, "token-of-alice")
	if err := n.validate(); err != nil {
		t.Fatal(err)
	}
	if err := n.RegisterPlugin("p", n.socket, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := n.call(t); err != nil || n.plugin.calls.Load() != 1 {
		t.Errorf("got %v after %d calls", err, n.plugin.calls.Load())
	}
}

// Without the API server nothing is verified, and stock's plugin manager tries again.
func TestAPIServerAwayAtTheRegistration(t *testing.T) {
	n := newNode(t, "token-of-alice")
	away := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	n.api.set(func() { n.api.answer = away })
	if err := n.validate(); err == nil || !strings.Contains(err.Error(), "could not be verified") {
		t.Errorf("got %v", err)
	}
	n.api.set(func() { n.api.answer = nil })
	if err := n.validate(); err != nil {
		t.Error(err)
	}
	if all := fmt.Sprint(n.Refusals(), <-n.events); strings.Contains(all, "token-of") {
		t.Errorf("the token is in %s", all)
	}
}
