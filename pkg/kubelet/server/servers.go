package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"

	oteltrace "go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"
	serverstats "k8s.io/kubernetes/pkg/kubelet/server/stats"
	netutils "k8s.io/utils/net"
)

// Config is the configuration of Servers.
type Config struct {
	Kubelet  *kubeletconfig.KubeletConfiguration
	Host     stockserver.HostInterface
	Analyzer serverstats.ResourceAnalyzer
	// Checkers are part of /healthz, in addition to ping, log and the sync loop.
	Checkers []healthz.HealthChecker
	Flagz    flagz.Reader
	// Debug returns what our own pages below /debug of the secure port show.
	Debug DebugSources
	// Auth authenticates and authorizes requests to the secure port. Without it Run returns an error.
	Auth stockserver.AuthInterface
	// TLS is the configuration of the secure port. Nil serves plain HTTP, for tests.
	TLS    *tls.Config
	Tracer oteltrace.TracerProvider
	// PodResources and Pods are served on sockets below their directories; may be nil.
	PodResources *PodResourcesConfig
	Pods         *PodsConfig
}

// PodResourcesConfig is the configuration of the PodResources API for local monitoring agents (KEP-606).
type PodResourcesConfig struct {
	Directory string
	Providers podresources.PodResourcesProviders
}

// PodsConfig is the configuration of the local pods API (KEP-4188).
type PodsConfig struct {
	Directory string
	Server    podsapi.PodsServer
}

// Servers are all listeners of the agent.
type Servers struct{ cfg Config }

// NewServers returns servers without opening a listener.
func NewServers(cfg Config) *Servers { return &Servers{cfg: cfg} }

// service is one listener. serve blocks until ctx ends or it fails.
type service struct {
	name  string
	serve func(context.Context) error
}

// Run opens every listener, then serves until ctx ends. A listener that cannot be opened, or that fails later, ends all
// of them, and its error is returned; when ctx ends there is no error. The health port is the exception: it is retried
// forever, because its failure must not stop a working agent.
func (s *Servers) Run(ctx context.Context) error {
	services, err := s.open(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, svc := range services {
		group.Go(func() error {
			if err := svc.serve(ctx); err != nil {
				return fmt.Errorf("%s: %w", svc.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// open binds every address before any is served, so that a port in use is detected before clients connect.
func (s *Servers) open(ctx context.Context) (services []service, err error) {
	defer func() {
		if err == nil {
			return
		}
		done, cancel := context.WithCancel(ctx)
		cancel()
		for _, svc := range services {
			_ = svc.serve(done) // closes its listener
		}
	}()
	for _, open := range []func(context.Context) (*service, error){s.secure, s.readOnly, s.podResources, s.pods} {
		svc, err := open(ctx)
		if err != nil {
			return services, err
		}
		if svc != nil {
			services = append(services, *svc)
		}
	}
	if s.cfg.Kubelet.HealthzPort > 0 {
		services = append(services, service{"health port", s.serveHealth})
	}
	return services, nil
}

func (s *Servers) secure(ctx context.Context) (*service, error) {
	cfg := s.cfg.Kubelet
	if !cfg.EnableServer {
		return nil, nil
	}
	if s.cfg.Auth == nil {
		return nil, fmt.Errorf("kubelet API: no authentication configured")
	}
	handler := stockserver.NewServer(ctx, s.cfg.Host, s.cfg.Analyzer, s.cfg.Checkers, s.cfg.Flagz, s.cfg.Auth, cfg)
	handler.InstallTracingFilter(s.cfg.Tracer)
	return listen(ctx, "kubelet API", address(cfg.Address, cfg.Port), s.withDebugPages(&handler), s.cfg.TLS)
}

// address joins host and port. As in stock, IPv4 addresses may have leading zeros.
func address(host string, port int32) string {
	if ip := netutils.ParseIPSloppy(host); ip != nil {
		host = ip.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func listen(ctx context.Context, name, address string, handler http.Handler, config *tls.Config) (*service, error) {
	klog.FromContext(ctx).Info("Starting to listen", "server", name, "address", address)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &service{name, func(ctx context.Context) error { return serveHTTP(ctx, listener, handler, config) }}, nil
}
