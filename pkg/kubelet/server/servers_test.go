package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	certutil "k8s.io/client-go/util/cert"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// freePort returns a port without a listener.
func freePort(t *testing.T) int32 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

func at(port int32, path string) string { return "127.0.0.1:" + strconv.Itoa(int(port)) + path }

func testServers(t *testing.T) Config {
	t.Helper()
	kubelet := debugConfig()
	kubelet.Port, kubelet.ReadOnlyPort = freePort(t), freePort(t)
	kubelet.HealthzBindAddress, kubelet.HealthzPort = "127.0.0.1", freePort(t)
	return Config{
		Kubelet: kubelet, Host: newWorld(testPod("p", "u", false)).host(), Analyzer: analyzer{}, Flagz: flags{},
		Auth:   newAuth(func(authorizer.Attributes) bool { return true }),
		Tracer: oteltrace.NewTracerProvider(),
	}
}

// run runs servers until the returned function is called, which returns what Run did.
func run(t *testing.T, servers *Servers) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- servers.Run(ctx) }()
	return func() error { cancel(); return <-ended }
}

// awaitStatus sends requests until the listener accepts them, and checks the status code of the first response.
func awaitStatus(t *testing.T, client *http.Client, url, token string, want int) {
	t.Helper()
	await.Until(t, url, func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Fatalf("%s: %d, want %d", url, response.StatusCode, want)
		}
		return nil
	})
}

func TestServersServeAndStop(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defer http.DefaultClient.CloseIdleConnections()
	cfg := testServers(t)
	options := selfSigned(t)
	certificates, err := NewCertificates(CertificatesConfig{Options: options, Kubelet: cfg.Kubelet})
	if err != nil {
		t.Fatal(err)
	}
	cfg.TLS = certificates.TLS()
	stop := run(t, NewServers(cfg))
	pool, err := certutil.NewPool(options.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	secure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer secure.CloseIdleConnections()
	awaitStatus(t, secure, "https://"+at(cfg.Kubelet.Port, "/pods"), "", 401)
	awaitStatus(t, secure, "https://"+at(cfg.Kubelet.Port, "/pods"), "reader", 200)
	awaitStatus(t, secure, "https://"+at(cfg.Kubelet.Port, "/healthz"), "nobody", 403)
	awaitStatus(t, http.DefaultClient, "http://"+at(cfg.Kubelet.ReadOnlyPort, "/pods"), "", 200)
	awaitStatus(t, http.DefaultClient, "http://"+at(cfg.Kubelet.ReadOnlyPort, "/configz"), "", 404)
	awaitStatus(t, http.DefaultClient, "http://"+at(cfg.Kubelet.HealthzPort, "/healthz"), "", 200)
	if err := stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
	for _, port := range []int32{cfg.Kubelet.Port, cfg.Kubelet.ReadOnlyPort, cfg.Kubelet.HealthzPort} {
		if _, err := net.Dial("tcp", at(port, "")); err == nil {
			t.Errorf("port %d still answers", port)
		}
	}
}

// If a port is in use, Run returns at once and no listener stays open.
func TestPortInUse(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cfg := testServers(t)
	taken, err := net.Listen("tcp", at(cfg.Kubelet.ReadOnlyPort, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = NewServers(cfg).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "read-only port") ||
		!strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
	if _, err := net.Dial("tcp", at(cfg.Kubelet.Port, "")); err == nil {
		t.Error("the secure port stayed open")
	}
}

func TestServersWithoutAuthenticationAreRefused(t *testing.T) {
	cfg := testServers(t)
	cfg.Auth = nil
	if err := NewServers(cfg).Run(t.Context()); err == nil {
		t.Error("served without authentication")
	}
}

// A stream that never ends does not prevent the stop.
func TestStopEndsStreams(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		cancel() // the agent stops while this request is being answered
		<-r.Context().Done()
	})
	ended := make(chan error, 1)
	go func() { ended <- serveHTTP(ctx, listener, handler, nil) }()
	response, err := http.Get("http://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("stopped with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("still serving")
	}
}

// fakePods are the pods of the PodResources API.
type fakePods struct{ pods []*v1.Pod }

func (f fakePods) GetActivePods() []*v1.Pod                                   { return f.pods }
func (f fakePods) GetPods() []*v1.Pod                                         { return f.pods }
func (f fakePods) GetPodByName(_, _ string) (*v1.Pod, bool)                   { return nil, false }
func (f fakePods) UpdateAllocatedDevices()                                    {}
func (f fakePods) GetDevices(_, _ string) []*podresourcesapi.ContainerDevices { return nil }
func (f fakePods) GetAllocatableDevices() []*podresourcesapi.ContainerDevices { return nil }
func (f fakePods) GetCPUs(_, _ string) []int64                                { return []int64{1} }
func (f fakePods) GetAllocatableCPUs() []int64                                { return nil }
func (f fakePods) GetMemory(_, _ string) []*podresourcesapi.ContainerMemory   { return nil }
func (f fakePods) GetAllocatableMemory() []*podresourcesapi.ContainerMemory   { return nil }
func (f fakePods) GetDynamicResources(*v1.Pod, *v1.Container) []*podresourcesapi.DynamicResource {
	return nil
}

func TestPodResourcesSocket(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cfg := testServers(t)
	cfg.Kubelet.EnableServer, cfg.Kubelet.ReadOnlyPort, cfg.Kubelet.HealthzPort = false, 0, 0
	dir := t.TempDir()
	pods := fakePods{[]*v1.Pod{testPod("p", "u", false)}}
	cfg.PodResources = &PodResourcesConfig{Directory: dir, Providers: podresources.PodResourcesProviders{
		Pods: pods, Devices: pods, Cpus: pods, Memory: pods, DynamicResources: pods,
	}}
	stop := run(t, NewServers(cfg))
	connection, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	answer, err := podresourcesapi.NewPodResourcesListerClient(connection).List(t.Context(),
		&podresourcesapi.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil || len(answer.PodResources) != 1 || answer.PodResources[0].Name != "p" {
		t.Errorf("listed %v, %v", answer, err)
	}
	if err := stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
}

// selfSigned writes a certificate for 127.0.0.1.
func selfSigned(t *testing.T) *stockserver.TLSOptions {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	options := &stockserver.TLSOptions{
		CertFile: filepath.Join(dir, "crt"), KeyFile: filepath.Join(dir, "key"), MinVersion: tls.VersionTLS12,
	}
	if err := errors.Join(os.WriteFile(options.CertFile, cert, 0o600),
		os.WriteFile(options.KeyFile, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	return options
}
