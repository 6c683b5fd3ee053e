package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/await"
)

// A plugin whose process has died is dialled again, without a new registration.
func TestRedialAfterProcessDied(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := serve(t, h.socket("p"), "p", "first")
	e := h.register(t, "p", h.socket("p"))
	if token, err := getToken(t.Context(), e, time.Minute); token != "first" || err != nil {
		t.Fatalf("got %q, %v", token, err)
	}
	p.die()
	await.True(t, "an error", func() bool {
		_, err := getToken(t.Context(), e, time.Minute)
		return status.Code(err) == codes.Unavailable
	})
	must(t, os.Remove(h.socket("p")))
	serve(t, h.socket("p"), "p", "second")
	await.True(t, "the answer of the new process", func() bool {
		h.clock.SetTime(h.clock.Now().Add(maxSuspension))
		token, _ := getToken(t.Context(), e, time.Minute)
		return token == "second"
	})
	if health := e.Health(); health.Failures != 0 {
		t.Errorf("got %+v", health)
	}
}

// An answer over 4 MiB is an error like others, one of 4 MiB is not.
func TestAnswerOverFourMiB(t *testing.T) {
	h := newHost(t)
	const overhead = 5 // bytes of the field's key and length
	p := serve(t, h.socket("p"), "p", strings.Repeat("t", 4<<20-overhead))
	e := h.register(t, "p", h.socket("p"))
	if token, err := getToken(t.Context(), e, time.Minute); err != nil || len(token) != len(p.token) {
		t.Errorf("got %d bytes, %v", len(token), err)
	}
	p.token += "t"
	if _, err := getToken(t.Context(), e, time.Minute); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
	if health := e.Health(); health.Failures != 1 || health.LastError == "" || health.LastSuccess.IsZero() {
		t.Errorf("got %+v", health)
	}
	p.token = "t"
	if token, err := getToken(t.Context(), e, time.Minute); token != "t" || err != nil {
		t.Errorf("got %q, %v", token, err)
	}
}

// Unimplemented is passed on and is no failure.
func TestUnimplementedIsNoFailure(t *testing.T) {
	h := newHost(t)
	serve(t, h.socket("p"), "p", "t")
	e := h.register(t, "p", h.socket("p"))
	for range 10 {
		err := e.Call(t.Context(), time.Minute, func(ctx context.Context, conn grpc.ClientConnInterface) error {
			_, err := v1alpha1.NewEvictionPluginClient(conn).GetEvictPods(ctx, &v1alpha1.GetEvictPodsRequest{})
			return err
		})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("got %v, want Unimplemented", err)
		}
	}
	if health := e.Health(); health.Failures != 0 || health.LastSuccess.IsZero() {
		t.Errorf("got %+v", health)
	}
}

// The second call waits for the first, within its own time-out.
func TestOneCallUnderWay(t *testing.T) {
	h := newHost(t)
	serve(t, h.socket("p"), "p", "t")
	e := h.register(t, "p", h.socket("p"))
	err := e.Call(t.Context(), time.Minute, func(context.Context, grpc.ClientConnInterface) error {
		h.clock.SetTime(h.clock.Now().Add(time.Second))
		_, err := getToken(t.Context(), e, time.Millisecond)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v for a call beside another one", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if health := e.Health(); health.Failures != 0 || health.Latency != time.Second {
		t.Errorf("got %+v", health)
	}
	if token, err := getToken(t.Context(), e, time.Minute); token != "t" || err != nil {
		t.Errorf("got %q, %v", token, err)
	}
}

func TestSuspensionDoubles(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		5: 30 * time.Second, 6: time.Minute, 7: 2 * time.Minute, 8: 4 * time.Minute, 9: 5 * time.Minute,
		1 << 40: 5 * time.Minute,
	} {
		if got := suspension(failures); got != want {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
}

func TestErrorTextIsBounded(t *testing.T) {
	h := newHost(t)
	serve(t, h.socket("p"), "p", "t")
	e := h.register(t, "p", h.socket("p"))
	long := errors.New(strings.Repeat("ä", 1<<20))
	if err := e.Call(t.Context(), time.Minute, func(context.Context, grpc.ClientConnInterface) error {
		return long
	}); !errors.Is(err, long) {
		t.Errorf("got %v", err)
	}
	if got := len(e.Health().LastError); got != maxErrorText {
		t.Errorf("got %d bytes", got)
	}
}

// The driver limits the time of a call, as the host does. A plugin that does not answer in that time has failed; a call
// that is cancelled, because the plugin is removed or the agent stops, is no failure (E3).
func TestDeadlineOfTheCallerCounts(t *testing.T) {
	h := newHost(t)
	p := serve(t, h.socket("p"), "p", "t")
	p.hangs.Store(true)
	e := h.register(t, "p", h.socket("p"))
	for range failuresBeforeSuspension {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := getToken(ctx, e, time.Minute); err == nil {
			t.Error("the call has not failed")
		}
		cancel()
	}
	if health := e.Health(); health.Failures != failuresBeforeSuspension || health.SuspendedUntil.IsZero() {
		t.Errorf("got %+v, want a suspended plugin", health)
	}
	h.clock.SetTime(h.clock.Now().Add(minSuspension))
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := func(context.Context, grpc.ClientConnInterface) error { cancel(); return ctx.Err() }
	if err := e.Call(ctx, time.Minute, cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if failures := e.Health().Failures; failures != failuresBeforeSuspension {
		t.Errorf("%d failures, want those before the call that was cancelled", failures)
	}
}

// A plugin does not make the agent read megabytes of trailers, nor keep the text of an error.
func TestErrorTextOfPluginIsBounded(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := serve(t, h.socket("p"), "p", "t")
	p.failure.Store(new(strings.Repeat("x", 1<<20)))
	e := h.register(t, "p", h.socket("p"))
	_, err := getToken(t.Context(), e, time.Minute)
	if err == nil || len(err.Error()) > maxHeaderBytes {
		t.Fatalf("got an error of %d bytes", len(fmt.Sprint(err)))
	}
	p.failure.Store(nil)
	if token, err := getToken(t.Context(), e, time.Minute); token != "t" || err != nil {
		t.Errorf("the plugin answered %q, %v after an error with a long text", token, err)
	}
}
