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

// bootstrapping is a process that has nothing but a bootstrap kubeconfig for the API server.
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

// seen asks the API server what it sees of the client: the name ("client") or the number of its certificate ("serial").
func seen(ctx context.Context, client clientset.Interface, what string) string {
	node, err := client.CoreV1().Nodes().Get(ctx, "here", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return node.Annotations[what]
}

// Without rotation the start waits for the certificate, and a kubeconfig that points to it is left for the next start.
func TestBootstrap(t *testing.T) {
	api := newFakeAPI(t)
	p := bootstrapping(t, api)
	for start := range 2 {
		if err := p.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := seen(t.Context(), p.deps.Clients.Kube, "client"); got != "system:node:here" {
			t.Errorf("start %d: the API server knows the client as %q", start, got)
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

// With rotation the start goes on at once, and the certificate takes effect when it comes.
func TestBootstrapWithRotation(t *testing.T) {
	api := newFakeAPI(t)
	p := bootstrapping(t, api)
	p.settings.Config.RotateCertificates = true
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	p.cancel = cancel
	if err := p.connect(ctx); err != nil {
		t.Fatal(err)
	}
	if got := api.requests.Load(); got != 0 || len(p.background) != 1 {
		t.Fatalf("%d certificates requested before anything was started; %d in the background", got, len(p.background))
	}
	go p.background[0](ctx)
	await.Until(t, "a client with the certificate", func() error {
		if got := seen(ctx, p.deps.Clients.Kube, "client"); got != "system:node:here" {
			return fmt.Errorf("the API server knows the client as %q", got)
		}
		return nil
	})
	if got := seen(ctx, p.deps.Clients.Heartbeat, "client"); got != "system:node:here" {
		t.Errorf("heartbeats come from %q", got)
	}
}

func TestBrokenKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, file, "clusters: many")
	p := &process{settings: validSettings(t, "--kubeconfig="+file)}
	p.deps.Observability.TracerProvider = tracing.NewNoopTracerProvider()
	for _, rotate := range []bool{false, true} {
		p.settings.Config.RotateCertificates = rotate
		if err := p.connect(t.Context()); err == nil || !strings.Contains(err.Error(), "--kubeconfig \""+file) {
			t.Errorf("rotation %v: got %v, want the flag and the file", rotate, err)
		}
	}
}
