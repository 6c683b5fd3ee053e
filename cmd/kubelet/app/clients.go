package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/certificate/bootstrap"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/publish"
)

// apiConnection is the client configuration for the API server, and a function that closes stale connections.
type apiConnection struct {
	config     *rest.Config
	closeStale func()
}

// makeClients creates the clients: one for objects, one for heartbeats without rate limit and with a short timeout,
// and one for the objects of reporter plugins. (makeRecorder creates another one for events.) In standalone mode there
// are none.
func (p *process) makeClients(ctx context.Context) error {
	if p.settings.standalone() {
		klog.FromContext(ctx).Info("Standalone mode, no API client")
		return nil
	}
	connection, err := p.apiConnection(ctx)
	if err != nil {
		return err
	}
	p.api = connection.config
	kube, err := clientset.NewForConfig(connection.config)
	if err != nil {
		return fmt.Errorf("failed to initialize kubelet client: %w", err)
	}
	heartbeat, err := clientset.NewForConfig(heartbeatConfig(connection.config, p.settings.Config))
	if err != nil {
		return fmt.Errorf("failed to initialize kubelet heartbeat client: %w", err)
	}
	reporter, err := publish.NewClient(connection.config)
	if err != nil {
		return fmt.Errorf("failed to initialize kubelet client for reporter plugins: %w", err)
	}
	p.deps.Clients = kubelet.Clients{
		Kube: kube, Heartbeat: heartbeat, Reporter: reporter, OnHeartbeatFailure: connection.closeStale,
	}
	return nil
}

// heartbeatConfig has no rate limit, and a timeout before the next heartbeat is due and before the lease expires.
func heartbeatConfig(api *rest.Config, config *kubeletconfig.KubeletConfiguration) *rest.Config {
	heartbeat := *api
	lease := time.Duration(config.NodeLeaseDurationSeconds) * time.Second
	heartbeat.Timeout = min(config.NodeStatusUpdateFrequency.Duration, lease)
	heartbeat.QPS = -1
	return &heartbeat
}

// apiConnection reads the kubeconfig, after creating it by bootstrap if that is configured.
func (p *process) apiConnection(ctx context.Context) (*apiConnection, error) {
	if p.settings.Config.RotateCertificates {
		return p.rotatingConnection(ctx)
	}
	flags := p.settings.Flags
	if flags.BootstrapKubeconfig != "" {
		if err := bootstrap.LoadClientCert(ctx, flags.KubeConfig, flags.BootstrapKubeconfig, flags.CertDirectory,
			p.deps.Identity.NodeName); err != nil {
			return nil, fmt.Errorf("--bootstrap-kubeconfig %q: %w", flags.BootstrapKubeconfig, err)
		}
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: flags.KubeConfig}, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("invalid kubeconfig --kubeconfig %q: %w", flags.KubeConfig, err)
	}
	limitRequests(config, p.settings.Config)
	connection := &apiConnection{config: config}
	if http1Only(ctx) {
		connection.closeStale, err = closableConnections(config)
	} else {
		connection.closeStale, err = closeIdle(config)
	}
	if err != nil {
		return nil, err
	}
	config.Wrap(tracing.WrapperFor(p.deps.Observability.TracerProvider))
	return connection, nil
}

// http1Only reads an environment variable of all Kubernetes clients. HTTP/2 detects dead connections; HTTP/1 does not,
// so that all connections must be closed when heartbeats fail.
func http1Only(ctx context.Context) bool {
	set := os.Getenv("DISABLE_HTTP2") != ""
	if set {
		klog.FromContext(ctx).Info(
			"HTTP2 has been explicitly disabled, Kubelet will forcefully close active connections on heartbeat failures")
	}
	return set
}

// closeIdle returns a function that closes idle connections of config's clients. The clients share one transport, which
// is read before it is wrapped. (Stock reads a field that has a transport only with rotating certificates.)
func closeIdle(config *rest.Config) (func(), error) {
	shared, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return func() { utilnet.CloseIdleConnectionsFor(shared) }, nil
}

// closableConnections returns a function that closes all connections of config's clients.
func closableConnections(config *rest.Config) (closeAll func(), err error) {
	if config.Transport != nil || config.Dial != nil {
		return nil, errors.New("there is already a transport or dialer configured")
	}
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	config.Dial = dialer.DialContext
	return dialer.CloseAll, nil
}

// limitRequests applies the content type and the rate limits of the configuration, which override the kubeconfig.
func limitRequests(client *rest.Config, config *kubeletconfig.KubeletConfiguration) {
	setContentType(client, config.ContentType)
	client.QPS = float32(config.KubeAPIQPS)
	client.Burst = int(config.KubeAPIBurst)
}

func setContentType(client *rest.Config, contentType string) {
	if contentType == "" {
		return
	}
	client.ContentType = contentType
	if contentType == runtime.ContentTypeProtobuf {
		client.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
}
