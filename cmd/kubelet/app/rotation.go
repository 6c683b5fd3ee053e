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
	// certificateCheck is how often the client certificate is looked at.
	certificateCheck = 10 * time.Second
	// certificatePatience is how long the agent goes on without any client certificate while the API server answers. After
	// that it ends, so that whoever started it can lay down new bootstrap credentials.
	certificatePatience = 5 * time.Minute
)

// rotatingConnection uses a client certificate that is renewed before it expires (KEP-266). The first one comes from
// the kubeconfig if that is valid, else it is requested with the bootstrap kubeconfig, in the background: until it is
// there requests fail.
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
	useContentType(requestConfig, p.settings.Config.ContentType)
	limitRequests(userConfig, p.settings.Config)

	manager, err := newClientCertificateManager(requestConfig, userConfig, flags.CertDirectory, p.deps.Identity.NodeName)
	if err != nil {
		return nil, err
	}
	if err := showClientCertificateTTL(manager); err != nil {
		logger.Error(err, "Failed to register the metric of the client certificate's lifetime")
	}

	// The manager's certificate takes the place of the one in the kubeconfig. Its own exit is off: this process ends in
	// order.
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
	connection := &apiConnection{config: config, dropStale: func() { utilnet.CloseIdleConnectionsFor(config.Transport) }}
	if http1Only(ctx) {
		connection.dropStale = closeAll
	}
	return connection, nil
}

// newClientCertificateManager asks for the first certificate with request, and for later ones with the certificate at
// hand. A certificate in the kubeconfig is replaced at once: kubeadm puts a powerful one there.
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

// watchClientCertificate ends the process when the certificate is gone or expired although the API server answers.
func (p *process) watchClientCertificate(ctx context.Context, manager certificate.Manager) {
	ticker := time.NewTicker(certificateCheck)
	defer ticker.Stop()
	watch := certificateWatch{lastSeen: time.Now()}
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

// certificateWatch remembers when there was a certificate last.
type certificateWatch struct{ lastSeen time.Time }

// check returns an error when the agent can no longer work with what it has.
func (w *certificateWatch) check(current *tls.Certificate, now time.Time) error {
	switch {
	case current == nil && now.Sub(w.lastSeen) > certificatePatience:
		return fmt.Errorf("no valid client certificate since %s", w.lastSeen.Format(time.RFC3339))
	case current == nil:
		return nil
	case current.Leaf != nil && now.After(current.Leaf.NotAfter):
		return errors.New("the client certificate has expired")
	}
	w.lastSeen = now
	return nil
}

func showClientCertificateTTL(manager certificate.Manager) error {
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
