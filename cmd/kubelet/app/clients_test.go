package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/tracing"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// bootstrapping returns a process with only a bootstrap kubeconfig for the API server.
func bootstrapping(t *testing.T, api *fakeAPI) *process {
	t.Helper()
	dir := t.TempDir()
	bootstrap := clientcmdapi.NewConfig()
	bootstrap.Clusters["c"] = &clientcmdapi.Cluster{
		Server:                   api.server.URL,
		CertificateAuthorityData: api.serverCA(),
	}
	bootstrap.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "bootstrap"}
	bootstrap.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	bootstrap.CurrentContext = "x"
	file := filepath.Join(dir, "bootstrap")
	if err := clientcmd.WriteToFile(*bootstrap, file); err != nil {
		t.Fatal(err)
	}
	p := &process{
		settings: validSettings(t, "--bootstrap-kubeconfig="+file, "--kubeconfig="+filepath.Join(dir, "kubeconfig")),
	}
	p.settings.Config.ContentType = "application/json"
	p.deps.Identity.NodeName = "here"
	p.deps.Observability.TracerProvider = tracing.NewNoopTracerProvider()
	return p
}

// clientIdentity returns the client's identity in the API server: the name ("client") or the number of its certificate
// ("serial").
func clientIdentity(ctx context.Context, client clientset.Interface, what string) string {
	node, err := client.CoreV1().Nodes().Get(ctx, "here", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return node.Annotations[what]
}

// Without rotation the start waits for the certificate, and writes a kubeconfig with its path for the next start.
func TestBootstrap(t *testing.T) {
	api := newFakeAPI(t)
	p := bootstrapping(t, api)
	for start := range 2 {
		if err := p.makeClients(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := clientIdentity(t.Context(), p.deps.Clients.Kube, "client"); got != "system:node:here" {
			t.Errorf("start %d: the client is, for the API server, %q", start, got)
		}
	}
	if got := api.requests.Load(); got != 1 {
		t.Errorf("%d certificates requested, want 1", got)
	}
	if _, err := os.Stat(p.settings.Flags.KubeConfig); err != nil {
		t.Error(err)
	}
	p.deps.Clients.OnHeartbeatFailure()
}

// With rotation the start continues at once, and the certificate is used when it was issued.
func TestBootstrapWithRotation(t *testing.T) {
	api := newFakeAPI(t)
	p := bootstrapping(t, api)
	p.settings.Config.RotateCertificates = true
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	p.cancel = cancel
	if err := p.makeClients(ctx); err != nil {
		t.Fatal(err)
	}
	if got := api.requests.Load(); got != 0 || len(p.background) != 1 {
		t.Fatalf("%d certificates requested before anything was started; %d in the background", got, len(p.background))
	}
	go p.background[0](ctx)
	await.Until(t, "a client with the certificate", func() error {
		if got := clientIdentity(ctx, p.deps.Clients.Kube, "client"); got != "system:node:here" {
			return fmt.Errorf("the client is, for the API server, %q", got)
		}
		return nil
	})
	if got := clientIdentity(ctx, p.deps.Clients.Heartbeat, "client"); got != "system:node:here" {
		t.Errorf("heartbeats come from %q", got)
	}
}

func TestInvalidKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, file, "clusters: many")
	p := &process{settings: validSettings(t, "--kubeconfig="+file)}
	p.deps.Observability.TracerProvider = tracing.NewNoopTracerProvider()
	for _, rotate := range []bool{false, true} {
		p.settings.Config.RotateCertificates = rotate
		if err := p.makeClients(t.Context()); err == nil || !strings.Contains(err.Error(), "--kubeconfig \""+file) {
			t.Errorf("rotation %v: got %v, want the flag and the file", rotate, err)
		}
	}
}
