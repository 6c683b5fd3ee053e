package app

import (
	"context"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	tracingapi "k8s.io/component-base/tracing/api/v1"
)

// fakeCollector records spans by name, and their senders.
type fakeCollector struct {
	collector.UnimplementedTraceServiceServer
	mu     sync.Mutex
	spans  map[string]string // name to trace
	sender map[string]string // attributes of the sender
}

// Export records one batch.
func (c *fakeCollector) Export(
	_ context.Context, r *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, batch := range r.ResourceSpans {
		for _, attribute := range batch.Resource.Attributes {
			c.sender[attribute.Key] = text(attribute.Value)
		}
		for _, scope := range batch.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans[span.Name] = string(span.TraceId)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func text(value *commonpb.AnyValue) string { return value.GetStringValue() }

// startCollector returns the address of the collector.
func startCollector(t *testing.T) (*fakeCollector, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeCollector{spans: map[string]string{}, sender: map[string]string{}}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, fake)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return fake, listener.Addr().String()
}

// kubeconfigFor writes a kubeconfig for the fake API server with a token.
func kubeconfigFor(t *testing.T, api *fakeAPI) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: api.server.URL, CertificateAuthorityData: api.serverCA()}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "reader"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// Spans of the agent are sent to the configured collector at the end at the latest, with the node's name; requests to
// the API server belong to the same trace.
func TestTraces(t *testing.T) {
	fake, endpoint := startCollector(t)
	api := newFakeAPI(t)
	p := &process{settings: validSettings(t, "--kubeconfig="+kubeconfigFor(t, api))}
	p.settings.Config.Tracing = &tracingapi.TracingConfiguration{
		Endpoint: &endpoint, SamplingRatePerMillion: new(int32(1_000_000)),
	}
	p.deps.Identity.Hostname, p.deps.Identity.NodeName = "here", "here"
	if err := p.makeTracing(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.makeClients(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, span := p.deps.Observability.TracerProvider.Tracer("test").Start(t.Context(), "syncPod")
	clientIdentity(ctx, p.deps.Clients.Kube, "client")
	span.End()
	p.close(t.Context())

	fake.mu.Lock()
	defer fake.mu.Unlock()
	if fake.sender["service.name"] != "kubelet" || fake.sender["host.name"] != "here" {
		t.Errorf("sent by %v", fake.sender)
	}
	if trace := fake.spans["syncPod"]; trace == "" || fake.spans["HTTP GET"] != trace {
		t.Errorf("spans and their traces: %q", fake.spans)
	}
}

// Without a rate nothing is sampled; without a configuration there is no connection.
func TestNoTraces(t *testing.T) {
	fake, endpoint := startCollector(t)
	for _, config := range []*tracingapi.TracingConfiguration{
		nil, {Endpoint: &endpoint}, {Endpoint: &endpoint, SamplingRatePerMillion: new(int32(0))},
	} {
		p := &process{settings: validSettings(t)}
		p.settings.Config.Tracing = config
		if err := p.makeTracing(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, span := p.deps.Observability.TracerProvider.Tracer("test").Start(t.Context(), "syncPod")
		span.End()
		p.close(t.Context())
	}
	fake.mu.Lock()
	defer fake.mu.Unlock()
	if len(fake.spans) > 0 {
		t.Errorf("sent %v", slices.Sorted(maps.Keys(fake.spans)))
	}
}
