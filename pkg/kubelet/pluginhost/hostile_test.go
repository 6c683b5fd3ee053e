package pluginhost

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
)

// Frames of HTTP/2 with their headers: RFC 9113.
const (
	// settings have the greatest initial window of streams, and windowUpdate enlarges that of the connection.
	settings     = "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x7f\xff\xff\xff"
	windowUpdate = "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x40\x00\x00\x00"
	ping         = "\x00\x00\x08\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)

// listen returns connections to the socket, the first of which is that of the validation.
func listen(t *testing.T, socket string) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// A plugin that does not read has a connection that takes gRPC 5 s to close. Nobody waits for that: neither the plugin
// manager, nor who calls other plugins, nor a reload.
func TestRemovalDoesNotWaitForAPluginThatDoesNotRead(t *testing.T) {
	h := newHost(t)
	listener := listen(t, h.socket("p"))
	e := h.register(t, "p", h.socket("p"))
	plugin := make(chan net.Conn, 1)
	go func() {
		for range 2 { // the validation, and the call
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(settings + windowUpdate))
			_, _ = io.ReadFull(conn, make([]byte, 64<<10)) // the beginning of the request, of which it reads no more
			plugin <- conn
		}
	}()
	_ = (<-plugin).Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request := &v1alpha1.GetEvictPodsRequest{ActivePods: [][]byte{make([]byte, 4<<20)}}
	called := make(chan error, 1)
	go func() {
		called <- e.Call(ctx, time.Minute, func(ctx context.Context, conn grpc.ClientConnInterface) error {
			_, err := v1alpha1.NewEvictionPluginClient(conn).GetEvictPods(ctx, request)
			return err
		})
	}()
	conn := <-plugin
	cancel()
	if err := <-called; status.Code(err) != codes.Canceled {
		t.Fatalf("got %v", err)
	}
	h.DeRegisterPlugin("p", h.socket("p"))
	// The connection is still open: the removal has not waited until it is closed.
	if _, err := conn.Write([]byte(ping)); err != nil {
		t.Errorf("the removal has waited for the end of the connection: %v", err)
	}
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}

// Another process names the socket of a plugin as its own endpoint. The end of that registration, at the refused
// notification or later, does not end the registration of the plugin.
func TestEndOfAForeignRegistrationOfASocket(t *testing.T) {
	h := newHost(t)
	serve(t, h.socket("p"), "p", "t")
	e := h.register(t, "p", h.socket("p"))
	h.register(t, "p", h.socket("p"))
	if endpoints := h.Endpoints(); len(endpoints) != 1 || endpoints[0] != e {
		t.Error("another registration of the same socket makes another endpoint")
	}
	h.DeRegisterPlugin("p", h.socket("p"))
	if tokens := h.tokens(t); len(tokens) != 1 || tokens[0] != "t" {
		t.Errorf("got %q, want the plugin", tokens)
	}
	h.DeRegisterPlugin("p", h.socket("p"))
	if endpoints := h.Endpoints(); len(endpoints) != 0 {
		t.Errorf("%d endpoints after the end of both registrations", len(endpoints))
	}
}

// A process may change its name with each attempt to register. The recorder of events drops events about the Node when
// there are too many, whatever their reason, so that those of refusals are limited.
func TestEventsOfRefusalsAreLimited(t *testing.T) {
	h := newHost(t)
	h.disabled.Store(true)
	for i := range 50 {
		if err := h.ValidatePlugin(fmt.Sprint("p", i), h.socket("p"), []string{"v1alpha1"}); err == nil {
			t.Error("accepted")
		}
	}
	if n := len(h.events); n != maxRefusalEvents {
		t.Errorf("%d events, want %d", n, maxRefusalEvents)
	}
	h.clock.SetTime(h.clock.Now().Add(refusalEventPeriod + time.Second))
	if err := h.ValidatePlugin("q", h.socket("p"), []string{"v1alpha1"}); err == nil {
		t.Error("accepted")
	}
	if n := len(h.events); n != maxRefusalEvents+1 {
		t.Errorf("%d events, want one more", n)
	}
}

// A link to the socket of a plugin, at which it is registered too, does not lead its name to another process later.
func TestLinkThatIsChangedAfterTheRegistration(t *testing.T) {
	h := newHost(t)
	serve(t, h.socket("p"), "p", "t")
	serve(t, h.socket("q"), "q", "other")
	must(t, os.Symlink("p.sock", h.socket("link")))
	h.register(t, "p", h.socket("p"))
	h.register(t, "p", h.socket("link"))
	must(t, os.Remove(h.socket("link")))
	must(t, os.Symlink("q.sock", h.socket("link")))
	if tokens := h.tokens(t); len(tokens) != 1 || tokens[0] != "t" {
		t.Errorf("got %q, want the plugin", tokens)
	}
}
