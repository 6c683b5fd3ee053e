package kubelet

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/clustertrustbundle"
	"k8s.io/kubernetes/pkg/kubelet/configmap"
	"k8s.io/kubernetes/pkg/kubelet/podcertificate"
	"k8s.io/kubernetes/pkg/kubelet/runtimeclass"
	"k8s.io/kubernetes/pkg/kubelet/secret"
	"k8s.io/kubernetes/pkg/kubelet/token"
	"k8s.io/kubernetes/pkg/kubelet/util/manager"
)

// objectParts are the managers of objects that pods refer to. Those of secrets, config maps and runtime classes are nil
// without an API server.
type objectParts struct {
	secrets         secret.Manager
	configMaps      configmap.Manager
	tokens          *token.Manager
	runtimeClasses  *runtimeclass.Manager
	trustBundles    clustertrustbundle.Manager
	podCertificates podcertificate.Manager
	// issuing equals podCertificates if the gate PodCertificateRequest is on and there is an API server, else nil.
	issuing *podcertificate.IssuingManager
}

func (b *build) makeObjects(ctx context.Context) error {
	o := &b.objects
	o.tokens = token.NewManager(b.Clients.Kube)
	o.trustBundles = &clustertrustbundle.NoopManager{}
	o.podCertificates = &podcertificate.NoOpManager{}
	if b.Clients.Standalone() {
		return nil
	}
	o.runtimeClasses = runtimeclass.NewManager(b.Clients.Kube)
	if b.enabled(features.ClusterTrustBundleProjection) {
		// The cache has up to two bundles per pod; the informer starts with the first request.
		o.trustBundles = clustertrustbundle.NewLazyInformerManager(ctx, b.Clients.Kube, 2*int(b.Config.MaxPods))
	}
	if b.enabled(features.PodCertificateRequest) {
		o.issuing = b.podCertificateManager()
		o.podCertificates = o.issuing
	}
	return b.watchObjects()
}

// watchObjects creates the managers of secrets and config maps with the configured change detection strategy.
func (b *build) watchObjects() error {
	o, kube, resync := &b.objects, b.Clients.Kube, b.Config.SyncFrequency.Duration
	ttl := manager.GetObjectTTLFromNodeFunc(b.sources.view.Lookup)
	switch strategy := b.Config.ConfigMapAndSecretChangeDetectionStrategy; strategy {
	case kubeletconfig.WatchChangeDetectionStrategy:
		o.secrets, o.configMaps = secret.NewWatchingSecretManager(kube, resync),
			configmap.NewWatchingConfigMapManager(kube, resync)
	case kubeletconfig.TTLCacheChangeDetectionStrategy:
		o.secrets, o.configMaps = secret.NewCachingSecretManager(kube, ttl), configmap.NewCachingConfigMapManager(kube, ttl)
	case kubeletconfig.GetChangeDetectionStrategy:
		o.secrets, o.configMaps = secret.NewSimpleSecretManager(kube), configmap.NewSimpleConfigMapManager(kube)
	default:
		return fmt.Errorf("configMapAndSecretChangeDetectionStrategy: %q is none of %q, %q, %q", strategy,
			kubeletconfig.WatchChangeDetectionStrategy, kubeletconfig.TTLCacheChangeDetectionStrategy,
			kubeletconfig.GetChangeDetectionStrategy)
	}
	return nil
}

// podCertificateManager returns the manager that requests certificates for pods (KEP-4317). Its informers list only the
// requests of this node, and this node.
func (b *build) podCertificateManager() *podcertificate.IssuingManager {
	only := func(field string) informers.SharedInformerFactory {
		selector := fields.OneTermEqualSelector(field, string(b.Identity.NodeName)).String()
		factory := informers.NewSharedInformerFactoryWithOptions(b.Clients.Kube, 0,
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector }))
		b.sources.informers = append(b.sources.informers, factory)
		return factory
	}
	requests, nodes := only("spec.nodeName"), only(metav1.ObjectNameField)
	return podcertificate.NewIssuingManager(b.Clients.Kube, b.pods.manager, b.Observability.Recorder,
		requests.Certificates().V1beta1().PodCertificateRequests(), nodes.Core().V1().Nodes(), b.Identity.NodeName, b.clock)
}

func (b *build) podCertificates() component { return runs("pod certificates", b.objects.issuing.Run) }

func (b *build) runtimeClasses() component {
	manager := b.objects.runtimeClasses
	return starts("runtime classes", func(ctx context.Context) { manager.Start(ctx.Done()) })
}
