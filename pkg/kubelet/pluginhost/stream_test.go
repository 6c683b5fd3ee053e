package pluginhost

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/await"
)

// A stream is beside calls, is made while calls are suspended, does not count for the health, and ends with the
// registration.
func TestStream(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := serve(t, h.socket("p"), "p", "token")
	e := h.register(t, "p", h.socket("p"))
	failed := errors.New("failed")
	err := e.Stream(t.Context(), func(ctx context.Context, conn grpc.ClientConnInterface) error {
		if token, err := getToken(ctx, e, time.Minute); token != "token" || err != nil {
			t.Errorf("a call beside the stream: got %q, %v", token, err)
		}
		for range failuresBeforeSuspension {
			_ = e.Call(ctx, time.Minute, func(context.Context, grpc.ClientConnInterface) error { return failed })
		}
		if _, err := getToken(ctx, e, time.Minute); !errors.Is(err, ErrSuspended) {
			t.Errorf("got %v", err)
		}
		_, err := v1alpha1.NewEvictionPluginClient(conn).GetToken(ctx, &v1alpha1.Empty{})
		return err
	})
	if health := e.Health(); err != nil || health.Failures != failuresBeforeSuspension {
		t.Errorf("got %v, %+v", err, health)
	}
	p.hangs.Store(true)
	hang := func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := v1alpha1.NewEvictionPluginClient(conn).GetToken(ctx, &v1alpha1.Empty{})
		return err
	}
	before, ended := p.calls.Load(), make(chan error, 1)
	go func() { ended <- e.Stream(t.Context(), hang) }()
	await.True(t, "the call of the stream", func() bool { return p.calls.Load() > before })
	h.DeRegisterPlugin("p", h.socket("p"))
	if err := <-ended; err == nil {
		t.Error("the stream has ended without an error")
	}
	if err := e.Stream(t.Context(), hang); !errors.Is(err, ErrRemoved) {
		t.Errorf("got %v", err)
	}
	if health := e.Health(); health.Failures != failuresBeforeSuspension {
		t.Errorf("got %+v", health)
	}
}
