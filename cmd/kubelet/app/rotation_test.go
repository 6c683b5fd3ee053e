package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/tracing"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// A certificate that is about to expire is renewed with itself, its connections are closed, and the new one is stored
// where stock reads it at its next start.
func TestClientCertificateRotation(t *testing.T) {
	api := newFakeAPI(t)
	api.firstExpires = true
	p := bootstrapping(t, api)
	p.settings.Config.RotateCertificates = true
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	p.cancel = cancel
	if err := p.makeClients(ctx); err != nil {
		t.Fatal(err)
	}
	go p.background[0](ctx)
	await.Until(t, "the second certificate in use", func() error {
		if got := clientIdentity(ctx, p.deps.Clients.Kube, "serial"); got != "2" {
			return fmt.Errorf("the API server sees certificate %q", got)
		}
		return nil
	})
	if got := clientIdentity(ctx, p.deps.Clients.Heartbeat, "serial"); got != "2" {
		t.Errorf("heartbeats come with certificate %q", got)
	}
	current := filepath.Join(p.settings.Flags.CertDirectory, "kubelet-client-current.pem")
	if target, err := os.Readlink(current); err != nil || filepath.Dir(target) != p.settings.Flags.CertDirectory {
		t.Errorf("%s leads to %q, %v", current, target, err)
	}
	if context.Cause(ctx) != nil {
		t.Errorf("the process would end: %v", context.Cause(ctx))
	}
}

// When heartbeats fail, connections that may be dead are closed: with HTTP/2 the idle ones, because it detects dead
// ones; without HTTP/2 all, including those in use.
func TestHeartbeatFailureClosesConnections(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http1=%v", http1), func(t *testing.T) {
			if http1 {
				t.Setenv("DISABLE_HTTP2", "1")
			}
			api := newFakeAPI(t)
			p := &process{settings: validSettings(t, "--kubeconfig="+kubeconfigFor(t, api))}
			p.deps.Observability.TracerProvider = tracing.NewNoopTracerProvider()
			if err := p.makeClients(t.Context()); err != nil {
				t.Fatal(err)
			}
			nodes := p.deps.Clients.Kube.CoreV1().Nodes()
			clientIdentity(t.Context(), p.deps.Clients.Kube, "client")
			clientIdentity(t.Context(), p.deps.Clients.Kube, "client")
			if got := api.connections.Load(); got != 1 {
				t.Fatalf("%d connections for two requests", got)
			}
			p.deps.Clients.OnHeartbeatFailure()
			clientIdentity(t.Context(), p.deps.Clients.Kube, "client")
			if got := api.connections.Load(); got != 2 {
				t.Errorf("%d connections after a failure", got)
			}
			if !http1 {
				return
			}
			hanging := make(chan error, 1)
			go func() {
				_, err := nodes.Get(t.Context(), "hanging", metav1.GetOptions{})
				hanging <- err
			}()
			await.Until(t, "a hanging request is aborted", func() error {
				p.deps.Clients.OnHeartbeatFailure()
				select {
				case err := <-hanging:
					if err == nil {
						t.Error("a request that hangs succeeded")
					}
					return nil
				default:
					return fmt.Errorf("it is not aborted")
				}
			})
		})
	}
}
