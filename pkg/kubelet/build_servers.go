package kubelet

import (
	"context"
	"crypto/tls"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/apis/pods"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podview"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/server"
)

// systemLogDir is what the logs endpoint serves.
const systemLogDir = "/var/log"

// serverParts answer others.
type serverParts struct {
	certificates *server.Certificates
	servers      *server.Servers
}

func (b *build) makeServers(ctx context.Context) (err error) {
	cfg := server.Config{
		Kubelet: b.Config, Host: b.serverHost(), Analyzer: b.stats.analyzer,
		Checkers: b.Machine.ContainerManager.GetHealthCheckers(),
		Flagz:    b.Serving.Flagz, Auth: b.Serving.Auth, Tracer: b.Observability.TracerProvider,
		Debug: server.DebugSources{
			PodWorkers: b.workers.workers.Views, Plugins: b.plugins.list, Pressure: b.pressure.log,
		},
	}
	if cfg.TLS, err = b.serverTLS(ctx); err != nil {
		return err
	}
	if b.enabled(features.KubeletPodResourcesGet) {
		cm := b.Machine.ContainerManager
		cfg.PodResources = &server.PodResourcesConfig{
			Directory: b.layout.PodResources(),
			Providers: podresources.PodResourcesProviders{Pods: podview.PodResources{View: b.pods.view, Pods: b.pods.manager},
				Devices: cm, Cpus: cm, Memory: cm, DynamicResources: cm},
		}
	}
	if b.enabled(features.PodsAPI) {
		podsServer := pods.NewPodsServer(pods.NewBroadcaster(), b.pods.manager, b.pods.status)
		b.pods.status.AddPodUpdateNotifier(podsServer)
		cfg.Pods = &server.PodsConfig{Directory: b.layout.PodsAPI(), Server: podsServer}
	}
	b.servers.servers = server.NewServers(cfg)
	return nil
}

func (b *build) serverHost() *server.Host {
	manager := b.runtime.manager
	return server.NewHost(server.HostConfig{
		Stats: b.stats.host, Identity: b.pods.manager, Runtime: manager, Metrics: manager, Running: b.runtime.cache,
		Streaming: manager, Runner: manager, CAdvisor: b.Machine.CAdvisor, Machine: b.machineInfo,
		SyncLoopHealth: b.loop.loop.HealthCheck,
		SystemLogs:     server.NewSystemLogs(systemLogDir, b.enabled(features.NodeLogQuery) && b.Config.EnableSystemLogQuery),
		CheckpointDir:  b.layout.Checkpoints(),
		Now:            time.Now,
	})
}

// serverTLS is nil when the secure server is off.
func (b *build) serverTLS(ctx context.Context) (*tls.Config, error) {
	if b.Serving.TLSOptions == nil {
		return nil, nil
	}
	view := b.sources.view
	certificates, err := server.NewCertificates(server.CertificatesConfig{
		Options: b.Serving.TLSOptions, Kubelet: b.Config,
		RequestFromAPI: b.Config.ServerTLSBootstrap && b.enabled(features.RotateKubeletServerCertificate),
		ReloadFiles:    b.enabled(features.ReloadKubeletServerCertificateFile),
		ReloadClientCA: b.enabled(features.ReloadKubeletClientCAFile),
		ClientCA:       b.Serving.Auth,
		Client:         b.Clients.Kube,
		NodeName:       b.Identity.NodeName,
		Addresses:      func() []v1.NodeAddress { return view.LastObservedAddresses(ctx) },
		Directory:      b.Flags.CertDirectory,
	})
	if err != nil {
		return nil, err
	}
	b.servers.certificates = certificates
	return certificates.TLS(), nil
}

func (b *build) servingCertificates() component {
	return runs("serving certificates", b.servers.certificates.Run)
}
