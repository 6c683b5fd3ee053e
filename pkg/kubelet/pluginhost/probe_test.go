package pluginhost

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/await"
)

// probeToken is a probe that calls GetToken, probeThreshold one that calls ThresholdMet.
func probeToken(ctx context.Context, conn grpc.ClientConnInterface) error {
	_, err := v1alpha1.NewEvictionPluginClient(conn).GetToken(ctx, &v1alpha1.Empty{})
	return err
}

func probeThreshold(ctx context.Context, conn grpc.ClientConnInterface) error {
	_, err := v1alpha1.NewEvictionPluginClient(conn).ThresholdMet(ctx, &v1alpha1.GetThresholdMetRequest{})
	return err
}

func expectNoAnswer(t *testing.T, err error, text string) {
	t.Helper()
	refused := (*refusal)(nil)
	if !errors.As(err, &refused) || refused.reason != noAnswer || !strings.Contains(refused.message, text) {
		t.Errorf("got %v, want %s", err, text)
	}
}

// Katalyst's manager registers a plugin and then waits for its first answer without a time-out (R15). Here the plugin
// is registered only after an answer; without one it is refused, with an event, and the next try succeeds.
func TestR15PluginThatDoesNotAnswerIsRefused(t *testing.T) {
	h := newHost(t)
	p := serve(t, h.socket("p"), "p", "")
	h.cfg.Probe = probeToken
	p.hangs.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	validated := make(chan *refusal, 1)
	go func() { validated <- h.validate(ctx, key{"p", h.socket("p")}, []string{"v1alpha1"}) }()
	await.True(t, "the plugin is called", func() bool { return p.calls.Load() > 0 })
	cancel() // sooner than the time-out would
	expectNoAnswer(t, <-validated, "the plugin does not answer, for which it has 5s: rpc error: code = Canceled")
	p.hangs.Store(false)

	failure := "no answer"
	p.failure.Store(&failure)
	before := refusalsOf(t, noAnswer)
	for range 2 {
		err := h.ValidatePlugin("p", h.socket("p"), []string{"v1alpha1"})
		expectNoAnswer(t, err, "the plugin does not answer, for which it has 5s: rpc error: code = Internal")
	}
	if list := h.Refusals(); len(list) != 1 || !strings.Contains(list[0].Message, "does not answer") {
		t.Errorf("the page has the refusals %+v", list)
	}
	if event := <-h.events; !strings.Contains(event, "does not answer") || len(h.events) != 0 {
		t.Errorf("got the event %q and %d more", event, len(h.events))
	}
	if n := refusalsOf(t, noAnswer) - before; n != 2 {
		t.Errorf("%v refusals are counted, want 2", n)
	}

	p.failure.Store(nil)
	h.register(t, "p", h.socket("p"))
	if list := h.Refusals(); len(list) != 0 {
		t.Errorf("a registered plugin has the refusals %+v", list)
	}
}

// While a probe is under way, which here does not end before the others are registered, no other plugin waits.
func TestR15ProbeThatHangsDelaysNoOtherPlugin(t *testing.T) {
	h := newHost(t)
	begun, release := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	h.cfg.Probe = func(ctx context.Context, conn grpc.ClientConnInterface) error {
		if first.CompareAndSwap(false, true) {
			close(begun)
			<-release
			return errors.New("no answer")
		}
		return probeToken(ctx, conn)
	}
	serve(t, h.socket("hanging"), "hanging", "")
	serve(t, h.socket("p"), "p", "")
	validated := make(chan error, 1)
	go func() { validated <- h.ValidatePlugin("hanging", h.socket("hanging"), []string{"v1alpha1"}) }()
	<-begun
	h.register(t, "p", h.socket("p"))
	h.DeRegisterPlugin("p", h.socket("p"))
	h.Recheck()
	close(release)
	expectNoAnswer(t, <-validated, "no answer")
}

// The same beside stock's plugin manager: plugins that never answer do not keep others from being registered.
func TestR15HangingPluginsBesideStocksPluginManager(t *testing.T) {
	h := newHost(t)
	h.cfg.Probe = probeToken
	h.watch(t)
	for _, name := range []string{"h0", "h1", "h2", "h3", "h4"} {
		hanging := serve(t, h.socket(name), name, "")
		hanging.hangs.Store(true)
	}
	p := serve(t, h.socket("p"), "p", "")
	await.True(t, "p is registered", func() bool {
		endpoints := h.Endpoints()
		return len(endpoints) == 1 && endpoints[0].Name() == "p"
	})
	if status := <-p.statuses; !status.PluginRegistered {
		t.Errorf("the plugin was told %v", status)
	}
}

// Only a plugin that may register is probed.
func TestPluginThatIsRefusedIsNotProbed(t *testing.T) {
	h := newTokenHost(t)
	h.cfg.Probe = probeThreshold
	p := serve(t, h.socket("p"), "p", "other")
	err := h.ValidatePlugin("p", h.socket("p"), []string{"v1alpha1"})
	if err == nil || !strings.Contains(err.Error(), "may not register") {
		t.Errorf("got %v", err)
	}
	h.authentication.Store(None)
	h.disabled.Store(true)
	err = h.ValidatePlugin("p", h.socket("p"), []string{"v1alpha1"})
	if err == nil || !strings.Contains(err.Error(), "not enabled") {
		t.Errorf("got %v", err)
	}
	if n := p.thresholds.Load(); n != 0 {
		t.Errorf("%d probes", n)
	}
}

// Under Token the probe is made over the connection whose process has been verified.
func TestProbeOverVerifiedConnection(t *testing.T) {
	h := newTokenHost(t)
	h.cfg.Probe = probeThreshold
	p := serve(t, h.socket("p"), "p", "good")
	h.register(t, "p", h.socket("p"))
	if p.calls.Load() != 1 || p.thresholds.Load() != 1 {
		t.Errorf("%d tokens and %d probes, want one of each", p.calls.Load(), p.thresholds.Load())
	}
}

// A process that takes the socket over after the verification is not called.
func TestSocketTakenOverBeforeTheProbe(t *testing.T) {
	h := newTokenHost(t)
	h.cfg.Probe = probeThreshold
	p := serve(t, h.socket("p"), "p", "good")
	var other *testPlugin
	h.during = func() {
		p.stop()
		other = serve(t, h.socket("p"), "p", "good")
	}
	err := h.ValidatePlugin("p", h.socket("p"), []string{"v1alpha1"})
	expectNoAnswer(t, err, "does not answer")
	if p.thresholds.Load() != 0 || other.thresholds.Load() != 0 {
		t.Errorf("%d and %d probes", p.thresholds.Load(), other.thresholds.Load())
	}
}
