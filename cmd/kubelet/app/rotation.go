package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	kubeletcertificate "k8s.io/kubernetes/pkg/kubelet/certificate"
	"k8s.io/kubernetes/pkg/kubelet/certificate/bootstrap"
	kubeletmetrics "k8s.io/kubernetes/pkg/kubelet/metrics"
)

const (
	// certificateCheckPeriod is the time between two checks of the client certificate.
	certificateCheckPeriod = 10 * time.Second
	// certificateTimeout is how long the agent runs without any client certificate while the API server responds. Then it
	// ends, so that new bootstrap credentials can be provided.
	certificateTimeout = 5 * time.Minute
)

// rotatingConnection uses a client certificate that is renewed before it expires (KEP-266). The first one comes from
// the kubeconfig if that is valid; else it is requested with the bootstrap kubeconfig in the background, and requests
// fail until it was issued.
func (p *process) rotatingConnection(ctx context.Context) (*apiConnection, error) {
	logger := klog.FromContext(ctx)
	flags := p.settings.Flags
	logger.Info("Client rotation is on, will bootstrap in background")
	requestConfig, userConfig, err := bootstrap.LoadClientConfig(logger, flags.KubeConfig, flags.BootstrapKubeconfig,
		flags.CertDirectory)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q, --bootstrap-kubeconfig %q: %w", flags.KubeConfig, flags.BootstrapKubeconfig,
			err)
	}
	setContentType(requestConfig, p.settings.Config.ContentType)
	limitRequests(userConfig, p.settings.Config)

	manager, err := newClientCertificateManager(requestConfig, userConfig, flags.CertDirectory, p.deps.Identity.NodeName)
	if err != nil {
		return nil, err
	}
	if err := registerTTLMetric(manager); err != nil {
		logger.Error(err, "Failed to register the metric of the client certificate's lifetime")
	}

	// The manager's certificate replaces that of the kubeconfig. The last argument disables its own exit of the process.
	config := rest.AnonymousClientConfig(userConfig)
	closeAll, err := kubeletcertificate.UpdateTransport(logger, ctx.Done(), config, manager, 0)
	if err != nil {
		return nil, err
	}
	p.background = append(p.background, func(ctx context.Context) {
		logger.V(2).Info("Starting client certificate rotation")
		manager.Start()
		defer manager.Stop()
		p.watchClientCertificate(ctx, manager)
	})
	connection := &apiConnection{config: config, closeStale: func() { utilnet.CloseIdleConnectionsFor(config.Transport) }}
	if http1Only(ctx) {
		connection.closeStale = closeAll
	}
	return connection, nil
}

// newClientCertificateManager requests the first certificate with request, and later ones with the current certificate.
// A certificate in the kubeconfig is replaced at once, because that of kubeadm has more permissions.
func newClientCertificateManager(
	request, user *rest.Config, dir string, node types.NodeName,
) (certificate.Manager, error) {
	client := func(current *tls.Certificate) (clientset.Interface, error) {
		if current == nil {
			return clientset.NewForConfig(request)
		}
		return clientset.NewForConfig(user)
	}
	return kubeletcertificate.NewKubeletClientCertificateManager(
		dir, node, user.CertData, user.KeyData, user.CertFile, user.KeyFile, client)
}

// watchClientCertificate ends the run when the certificate is missing or expired although the API server responds.
func (p *process) watchClientCertificate(ctx context.Context, manager certificate.Manager) {
	ticker := time.NewTicker(certificateCheckPeriod)
	defer ticker.Stop()
	watch := certificateWatcher{lastSeen: time.Now()}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			err := watch.check(manager.Current(), now)
			switch {
			case err == nil:
			case manager.ServerHealthy():
				p.cancel(err)
				return
			default:
				klog.FromContext(ctx).Error(err,
					"The API server does not answer. A restart may be necessary to retrieve new initial credentials.")
			}
		}
	}
}

// certificateWatcher records when there was a certificate last.
type certificateWatcher struct{ lastSeen time.Time }

// check returns an error when the certificate has expired, or there was none for certificateTimeout.
func (w *certificateWatcher) check(current *tls.Certificate, now time.Time) error {
	switch {
	case current == nil && now.Sub(w.lastSeen) > certificateTimeout:
		return fmt.Errorf("no valid client certificate since %s", w.lastSeen.Format(time.RFC3339))
	case current == nil:
		return nil
	case current.Leaf != nil && now.After(current.Leaf.NotAfter):
		return errors.New("the client certificate has expired")
	}
	w.lastSeen = now
	return nil
}

func registerTTLMetric(manager certificate.Manager) error {
	ttl := metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Subsystem:      kubeletmetrics.KubeletSubsystem,
		Name:           "certificate_manager_client_ttl_seconds",
		StabilityLevel: metrics.ALPHA,
		Help: "Gauge of the TTL (time-to-live) of the Kubelet's client certificate. " +
			"The value is in seconds until certificate expiry (negative if already expired). " +
			"If client certificate is invalid or unused, the value will be +INF.",
	}, func() float64 {
		current := manager.Current()
		if current == nil || current.Leaf == nil {
			return math.Inf(1)
		}
		return math.Trunc(time.Until(current.Leaf.NotAfter).Seconds())
	})
	return legacyregistry.Registerer().Register(ttl)
}
