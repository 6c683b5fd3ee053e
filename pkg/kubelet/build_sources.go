package kubelet

import (
	"context"
	"net/http"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus"
)

// sourceParts are the sources of pods, and the informers of nodes and services.
type sourceParts struct {
	pods  *config.PodConfig
	ready *addedSources

	nodeLister corelisters.NodeLister
	nodeSynced cache.InformerSynced
	view       *nodestatus.View

	services       corelisters.ServiceLister
	servicesSynced cache.InformerSynced

	// informers are the agent's own informers. Stock's managers have further ones.
	informers []informers.SharedInformerFactory
}

// addedSources are the sources whose pods the sync loop has added.
type addedSources struct {
	config.SourcesReady
	// api is true once that is so for the API server.
	api atomic.Bool
}

// AddSource implements config.SourcesReady.
func (s *addedSources) AddSource(source string) {
	s.SourcesReady.AddSource(source)
	if source == kubetypes.ApiserverSource {
		s.api.Store(true)
	}
}

func (b *build) makeSources(ctx context.Context) error {
	s := &b.sources
	s.nodeLister, s.nodeSynced, s.informers = nodestatus.NewLister(ctx, b.Clients.Kube, b.Identity.NodeName)
	s.view = nodestatus.NewView(nodestatus.ViewConfig{Name: b.Identity.NodeName, Lister: s.nodeLister,
		Client: b.nodeClient()})
	b.makeServiceLister()
	s.pods = config.NewPodConfig(b.Observability.Recorder, b.Observability.PodStartup)
	s.ready = &addedSources{SourcesReady: config.NewSourcesReady(s.pods.SeenAllSources)}
	b.addPodSources(ctx)
	return nil
}

// nodeClient returns the client of the API server, nil in standalone mode: not an interface with a nil pointer.
func (b *build) nodeClient() nodestatus.Client {
	if b.Clients.Standalone() {
		return nil
	}
	return b.Clients.Kube
}

// makeServiceLister creates the lister of services for the environment variables of containers. Headless services have
// no such variables, so they are not listed (kubernetes/kubernetes#122394).
func (b *build) makeServiceLister() {
	s := &b.sources
	if b.Clients.Standalone() {
		s.services = corelisters.NewServiceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}))
		s.servicesSynced = func() bool { return true }
		return
	}
	factory := informers.NewSharedInformerFactoryWithOptions(b.Clients.Kube, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.clusterIP", v1.ClusterIPNone).String()
		}))
	services := factory.Core().V1().Services()
	s.services, s.servicesSynced = services.Lister(), services.Informer().HasSynced
	s.informers = append(s.informers, factory)
}

// startInformers starts the informers; its stop waits for their end.
func (b *build) startInformers() component {
	list := b.sources.informers
	stop := ends("informers", waitFor(func() {
		for _, factory := range list {
			factory.Shutdown()
		}
	}))
	stop.start = func(ctx context.Context) error {
		for _, factory := range list {
			factory.Start(ctx.Done())
		}
		return nil
	}
	return stop
}

func (b *build) addPodSources(ctx context.Context) {
	logger, cfg, pods := klog.FromContext(ctx), b.Config, b.sources.pods
	if cfg.StaticPodPath != "" {
		logger.Info("Adding static pod path", "path", cfg.StaticPodPath)
		config.NewSourceFile(logger, cfg.StaticPodPath, b.Identity.NodeName, cfg.FileCheckFrequency.Duration,
			pods.Channel(ctx, kubetypes.FileSource))
	}
	if cfg.StaticPodURL != "" {
		header := staticPodHeader(cfg.StaticPodURLHeader)
		logger.Info("Adding pod URL with HTTP header", "URL", cfg.StaticPodURL, "header", header)
		config.NewSourceURL(logger, cfg.StaticPodURL, header, b.Identity.NodeName, cfg.HTTPCheckFrequency.Duration,
			pods.Channel(ctx, kubetypes.HTTPSource))
	}
	if !b.Clients.Standalone() {
		logger.Info("Adding apiserver pod source")
		config.NewSourceApiserver(logger, b.Clients.Kube, b.Identity.NodeName, b.sources.nodeSynced,
			pods.Channel(ctx, kubetypes.ApiserverSource))
	}
}

// staticPodHeader canonicalizes the names of the header, so that a field that Go's client sets itself is not sent
// twice.
func staticPodHeader(configured map[string][]string) http.Header {
	header := http.Header{}
	for name, values := range configured {
		for _, value := range values {
			header.Add(name, value)
		}
	}
	return header
}
