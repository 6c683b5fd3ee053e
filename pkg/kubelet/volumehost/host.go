package volumehost

import (
	"errors"
	"fmt"

	"k8s.io/client-go/informers"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/volume"
)

var (
	_ volume.VolumeHost        = (*Host)(nil)
	_ volume.KubeletVolumeHost = (*Host)(nil)
)

// Host is the agent as volume plugins see it. It is safe for concurrent use.
type Host struct {
	cfg     Config
	plugins volume.VolumePluginMgr
	drivers csiDrivers
}

// csiDrivers watches CSIDriver objects. All fields are nil in standalone mode.
type csiDrivers struct {
	factory informers.SharedInformerFactory
	lister  storagelisters.CSIDriverLister
	synced  cache.InformerSynced
}

// New returns a host. It starts nothing; the volume manager starts the informers.
func New(cfg Config) *Host {
	return &Host{cfg: cfg, drivers: newCSIDrivers(cfg)}
}

func newCSIDrivers(cfg Config) csiDrivers {
	if cfg.Client == nil {
		klog.InfoS("KubeClient is nil. Skip initialization of CSIDriverLister")
		return csiDrivers{}
	}
	factory := informers.NewSharedInformerFactory(cfg.Client, 0)
	watch := factory.Storage().V1().CSIDrivers()
	return csiDrivers{factory: factory, lister: watch.Lister(), synced: watch.Informer().HasSynced}
}

// InitPlugins initializes the plugins with this host and returns their manager. prober finds further plugins while the
// agent runs; nil means none. Call it once, when everything in Config works. The error names every plugin that failed.
func (h *Host) InitPlugins(
	plugins []volume.VolumePlugin, prober volume.DynamicPluginProber,
) (*volume.VolumePluginMgr, error) {
	if err := h.plugins.InitPlugins(plugins, prober, h); err != nil {
		return nil, fmt.Errorf("could not initialize volume plugins: %w", err)
	}
	return &h.plugins, nil
}

// SetKubeletError is how the CSI plugin keeps the node NotReady until its CSINode object is there; nil lifts that.
func (h *Host) SetKubeletError(err error) { h.cfg.StorageError(err) }

// GetInformerFactory watches CSIDriver objects; nil in standalone mode.
func (h *Host) GetInformerFactory() informers.SharedInformerFactory { return h.drivers.factory }

// CSIDriverLister lists the CSIDriver objects; nil in standalone mode.
func (h *Host) CSIDriverLister() storagelisters.CSIDriverLister { return h.drivers.lister }

// CSIDriversSynced says whether CSIDriverLister is complete; nil in standalone mode.
func (h *Host) CSIDriversSynced() cache.InformerSynced { return h.drivers.synced }

// WaitForCacheSync blocks until the CSIDriver objects are known or the agent stops.
func (h *Host) WaitForCacheSync() error {
	if h.drivers.synced == nil {
		return errors.New("CSIDriver objects are not watched: there is no API server")
	}
	if !cache.WaitForCacheSync(h.cfg.Stopped, h.drivers.synced) {
		return errors.New("the agent stopped before the CSIDriver objects were known")
	}
	return nil
}
