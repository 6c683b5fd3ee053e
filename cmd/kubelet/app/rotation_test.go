package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/component-base/tracing"
)

// serial is the number of the certificate that the API server sees.
func serial(ctx context.Context, client clientset.Interface) string {
	node, err := client.CoreV1().Nodes().Get(ctx, "here", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return node.Annotations["serial"]
}

// A certificate that is about to expire is renewed with itself, connections made with it are given up, and the new one is where
// stock looks for it at its next start.
func TestClientCertificateRotation(t *testing.T) {
	api := newFakeAPI(t)
	api.firstExpires = true
	p := bootstrapping(t, api)
	p.settings.Config.RotateCertificates = true
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	p.cancel = cancel
	if err := p.connect(ctx); err != nil {
		t.Fatal(err)
	}
	go p.background[0](ctx)
	await(t, "the second certificate in use", func() error {
		if got := serial(ctx, p.deps.Clients.Kube); got != "2" {
			return fmt.Errorf("the API server sees certificate %q", got)
		}
		return nil
	})
	if got := serial(ctx, p.deps.Clients.Heartbeat); got != "2" {
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

// await repeats check until it returns nil.
func await(t *testing.T, what string, check func() error) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(60 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// When heartbeats fail, connections that may be dead are given up: with HTTP/2 those that are idle, since it notices dead ones by
// itself; without it all, also those in use.
func TestHeartbeatFailureDropsConnections(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http1=%v", http1), func(t *testing.T) {
			if http1 {
				t.Setenv("DISABLE_HTTP2", "1")
			}
			api := newFakeAPI(t)
			p := &process{settings: validSettings(t, "--kubeconfig="+kubeconfigFor(t, api))}
			p.deps.Observability.TracerProvider = tracing.NewNoopTracerProvider()
			if err := p.connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			nodes := p.deps.Clients.Kube.CoreV1().Nodes()
			whoami(t.Context(), p.deps.Clients.Kube)
			whoami(t.Context(), p.deps.Clients.Kube)
			if got := api.connections.Load(); got != 1 {
				t.Fatalf("%d connections for two requests", got)
			}
			p.deps.Clients.OnHeartbeatFailure()
			whoami(t.Context(), p.deps.Clients.Kube)
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
			await(t, "a request that hangs is given up", func() error {
				p.deps.Clients.OnHeartbeatFailure()
				select {
				case err := <-hanging:
					if err == nil {
						t.Error("a request that hangs succeeded")
					}
					return nil
				default:
					return fmt.Errorf("it goes on")
				}
			})
		})
	}
}
