package pluginhost

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	testclock "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
)

// All goroutines of hosts, plugins and plugin managers have ended after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

const pluginType = "EvictionPlugin"

// testPlugin serves registration and two calls, GetToken and ThresholdMet, at one socket.
type testPlugin struct {
	registrationv1.UnimplementedRegistrationServer
	v1alpha1.UnimplementedEvictionPluginServer
	name, kind, token string
	// calls are those of GetToken, and thresholds those of ThresholdMet.
	calls, thresholds atomic.Int32
	hangs             atomic.Bool
	// failure is the text of the error of a call; nil for none.
	failure atomic.Pointer[string]
	// statuses has the results of registrations.
	statuses chan *registrationv1.RegistrationStatus

	listener *net.UnixListener
	server   *grpc.Server
	served   sync.WaitGroup
}

// serve starts the plugin, which runs until the end of the test at most.
func serve(t *testing.T, socket, name, token string) *testPlugin {
	t.Helper()
	p := serveType(t, socket, pluginType, name)
	p.token = token
	return p
}

func serveType(t *testing.T, socket, kind, name string) *testPlugin {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	p := &testPlugin{
		name: name, kind: kind, listener: listener, server: grpc.NewServer(),
		statuses: make(chan *registrationv1.RegistrationStatus, 100),
	}
	registrationv1.RegisterRegistrationServer(p.server, p)
	v1alpha1.RegisterEvictionPluginServer(p.server, p)
	p.served.Go(func() { _ = p.server.Serve(listener) })
	t.Cleanup(p.stop)
	return p
}

// stop ends the plugin and removes its socket.
func (p *testPlugin) stop() {
	p.server.Stop()
	p.served.Wait()
}

// die ends the plugin and leaves the socket, as a process that is killed does.
func (p *testPlugin) die() {
	p.listener.SetUnlinkOnClose(false)
	p.stop()
}

func (p *testPlugin) GetInfo(context.Context, *registrationv1.InfoRequest) (*registrationv1.PluginInfo, error) {
	return &registrationv1.PluginInfo{Type: p.kind, Name: p.name, SupportedVersions: []string{"v1alpha1"}}, nil
}

func (p *testPlugin) NotifyRegistrationStatus(
	_ context.Context, s *registrationv1.RegistrationStatus,
) (*registrationv1.RegistrationStatusResponse, error) {
	p.statuses <- s
	return &registrationv1.RegistrationStatusResponse{}, nil
}

func (p *testPlugin) GetToken(ctx context.Context, _ *v1alpha1.Empty) (*v1alpha1.GetTokenResponse, error) {
	p.calls.Add(1)
	if p.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if text := p.failure.Load(); text != nil {
		return nil, status.Error(codes.Internal, *text)
	}
	return &v1alpha1.GetTokenResponse{Token: p.token}, nil
}

func (p *testPlugin) ThresholdMet(
	context.Context, *v1alpha1.GetThresholdMetRequest,
) (*v1alpha1.ThresholdMetResponse, error) {
	p.thresholds.Add(1)
	return &v1alpha1.ThresholdMetResponse{}, nil
}

// testHost is a host whose settings a test may change.
type testHost struct {
	*Host
	dir            string
	clock          *testclock.FakePassiveClock
	events         chan string
	disabled       atomic.Bool
	authentication atomic.Value
}

func newHost(t *testing.T) *testHost {
	t.Helper()
	h := &testHost{dir: directory(t), clock: testclock.NewFakePassiveClock(time.Unix(1e9, 0))}
	h.authentication.Store(SocketOwner)
	recorder := record.NewFakeRecorder(100)
	h.events = recorder.Events
	h.Host = New(Config{
		Type: pluginType, Version: "v1alpha1", Directories: []string{h.dir},
		InTree:         func(name string) bool { return name == "memory-growth" },
		Enabled:        func(string) bool { return !h.disabled.Load() },
		Authentication: func() Authentication { return h.authentication.Load().(Authentication) },
		Owner:          uint32(os.Geteuid()),
		Clock:          h.clock, Recorder: recorder, Node: &v1.ObjectReference{Kind: "Node", Name: "n"},
	})
	t.Cleanup(h.Close)
	return h
}

// directory has a short path: those of sockets are limited to 107 bytes.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plugins")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (h *testHost) socket(name string) string { return filepath.Join(h.dir, name+".sock") }

// watch runs stock's plugin manager until the end of the test. It returns when the directory is watched: stock
// registers a socket twice, with a deregistration between, that is created while it begins to watch. What shows
// that it has begun is the refusal of a plugin without a handler.
func (h *testHost) watch(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	manager := pluginmanager.NewPluginManager(h.dir, record.NewFakeRecorder(100))
	manager.AddHandler(pluginType, h)
	other := serveType(t, h.socket("other-type"), "OtherType", "other")
	var running sync.WaitGroup
	running.Go(func() { manager.Run(ctx, nil, ctx.Done()) })
	t.Cleanup(func() { cancel(); running.Wait() })
	<-other.statuses
	other.stop()
}

// register validates and registers a plugin as the plugin manager does.
func (h *testHost) register(t *testing.T, name, socket string) *Endpoint {
	t.Helper()
	if err := h.ValidatePlugin(name, socket, []string{"v1alpha1"}); err != nil {
		t.Fatal(err)
	}
	if err := h.RegisterPlugin(name, socket, []string{"v1alpha1"}, nil); err != nil {
		t.Fatal(err)
	}
	for _, e := range h.Endpoints() {
		if e.Name() == name && e.Socket() == socket {
			return e
		}
	}
	t.Fatalf("no endpoint of %s at %s", name, socket)
	return nil
}

// tokens returns what the endpoints answer, in their order.
func (h *testHost) tokens(t *testing.T) (tokens []string) {
	t.Helper()
	for _, e := range h.Endpoints() {
		token, err := getToken(t.Context(), e, time.Minute)
		if err != nil {
			token = err.Error()
		}
		tokens = append(tokens, token)
	}
	return tokens
}

func getToken(ctx context.Context, e *Endpoint, timeout time.Duration) (token string, err error) {
	err = e.Call(ctx, timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		answer, err := v1alpha1.NewEvictionPluginClient(conn).GetToken(ctx, &v1alpha1.Empty{})
		token = answer.GetToken()
		return err
	})
	return token, err
}
