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
)

// apiConnection is how to reach the API server, and how to drop connections that have gone stale.
type apiConnection struct {
	config    *rest.Config
	dropStale func()
}

// connect makes the clients: one for objects, one for heartbeats that is neither slowed down nor kept waiting. (Events
// have a third, made with the recorder.) In standalone mode there are none.
func (p *process) connect(ctx context.Context) error {
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
	p.deps.Clients = kubelet.Clients{Kube: kube, Heartbeat: heartbeat, OnHeartbeatFailure: connection.dropStale}
	return nil
}

// heartbeatConfig has no rate limit, and gives up before the next heartbeat is due or the lease runs out.
func heartbeatConfig(api *rest.Config, config *kubeletconfig.KubeletConfiguration) *rest.Config {
	heartbeat := *api
	lease := time.Duration(config.NodeLeaseDurationSeconds) * time.Second
	heartbeat.Timeout = min(config.NodeStatusUpdateFrequency.Duration, lease)
	heartbeat.QPS = -1
	return &heartbeat
}

// apiConnection reads the kubeconfig, getting one by bootstrap first where that is asked for.
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
		connection.dropStale, err = rememberConnections(config)
	} else {
		connection.dropStale, err = closeIdle(config)
	}
	if err != nil {
		return nil, err
	}
	config.Wrap(tracing.WrapperFor(p.deps.Observability.TracerProvider))
	return connection, nil
}

// http1Only is set by an environment variable that all Kubernetes clients obey. HTTP/2 notices dead connections by
// itself; HTTP/1 does not, and then all connections must be closed when heartbeats fail.
func http1Only(ctx context.Context) bool {
	set := os.Getenv("DISABLE_HTTP2") != ""
	if set {
		klog.FromContext(ctx).Info(
			"HTTP2 has been explicitly disabled, Kubelet will forcefully close active connections on heartbeat failures")
	}
	return set
}

// closeIdle closes the connections of config's clients that are not in use. The clients share one transport, which is
// asked for before it is wrapped. (Stock means to do the same, but looks where there is a transport only with rotating
// certificates.)
func closeIdle(config *rest.Config) (func(), error) {
	shared, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return func() { utilnet.CloseIdleConnectionsFor(shared) }, nil
}

// rememberConnections makes all connections of config closable at once.
func rememberConnections(config *rest.Config) (closeAll func(), err error) {
	if config.Transport != nil || config.Dial != nil {
		return nil, errors.New("there is already a transport or dialer configured")
	}
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	config.Dial = dialer.DialContext
	return dialer.CloseAll, nil
}

// limitRequests applies the content type and the rate limits of the configuration, which overrule the kubeconfig.
func limitRequests(client *rest.Config, config *kubeletconfig.KubeletConfiguration) {
	useContentType(client, config.ContentType)
	client.QPS = float32(config.KubeAPIQPS)
	client.Burst = int(config.KubeAPIBurst)
}

func useContentType(client *rest.Config, contentType string) {
	if contentType == "" {
		return
	}
	client.ContentType = contentType
	if contentType == runtime.ContentTypeProtobuf {
		client.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
}
