package volumehost

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
)

var (
	_ volume.VolumeHost        = (*Host)(nil)
	_ volume.KubeletVolumeHost = (*Host)(nil)
)

// Host implements the interfaces of the volume library. It is safe for concurrent use.
type Host struct {
	cfg     Config
	plugins volume.VolumePluginMgr
	drivers csiDrivers
}

// csiDrivers has the informer of CSIDriver objects. All fields are nil in standalone mode.
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
// agent runs; it may be nil. InitPlugins may be called once, when Config is complete. The error names every plugin that
// failed.
func (h *Host) InitPlugins(
	plugins []volume.VolumePlugin, prober volume.DynamicPluginProber,
) (*volume.VolumePluginMgr, error) {
	if err := h.plugins.InitPlugins(plugins, prober, h); err != nil {
		return nil, fmt.Errorf("could not initialize volume plugins: %w", err)
	}
	return &h.plugins, nil
}

// SetKubeletError sets the storage error. The CSI plugin calls it so that the node is not Ready before the CSINode
// object exists; nil removes the error.
func (h *Host) SetKubeletError(err error) { h.cfg.StorageError(err) }

// GetInformerFactory returns the factory of the CSIDriver informer; nil in standalone mode.
func (h *Host) GetInformerFactory() informers.SharedInformerFactory { return h.drivers.factory }

// CSIDriverLister lists the CSIDriver objects; nil in standalone mode.
func (h *Host) CSIDriverLister() storagelisters.CSIDriverLister { return h.drivers.lister }

// CSIDriversSynced returns whether CSIDriverLister is complete; nil in standalone mode.
func (h *Host) CSIDriversSynced() cache.InformerSynced { return h.drivers.synced }

// WaitForCacheSync blocks until the CSIDriver objects are listed or the agent stops.
func (h *Host) WaitForCacheSync() error {
	if h.drivers.synced == nil {
		return errors.New("CSIDriver objects are not watched: there is no API server")
	}
	if !cache.WaitForCacheSync(h.cfg.Stopped, h.drivers.synced) {
		return errors.New("the agent stopped before the CSIDriver objects were listed")
	}
	return nil
}

// GetKubeClient returns the client of the API server; nil in standalone mode.
func (h *Host) GetKubeClient() clientset.Interface { return h.cfg.Client }

// GetMounter returns the interface that mounts and unmounts on the host.
func (h *Host) GetMounter() mount.Interface { return h.cfg.Mounts.Mounter }

// GetHostUtil returns the interface that inspects files and devices of the host.
func (h *Host) GetHostUtil() hostutil.HostUtils { return h.cfg.Mounts.HostUtil }

// GetSubpather returns the interface that prepares subPath mounts, so that symbolic links cannot redirect them.
func (h *Host) GetSubpather() subpath.Interface { return h.cfg.Mounts.Subpather }

// GetEventRecorder returns the recorder of events.
func (h *Host) GetEventRecorder() record.EventRecorder { return h.cfg.Recorder }

// GetPluginDir returns the directory for the data of a plugin.
func (h *Host) GetPluginDir(plugin string) string { return h.cfg.Layout.Plugin(plugin) }

// GetVolumeDevicePluginDir returns the directory in which a plugin maps block volumes for all pods.
func (h *Host) GetVolumeDevicePluginDir(plugin string) string {
	return h.cfg.Layout.VolumeDevicePlugin(plugin)
}

// GetPodsDir returns the directory that has one directory per pod, named by its UID.
func (h *Host) GetPodsDir() string { return h.cfg.Layout.Pods() }

// GetPodVolumeDir returns the directory on which a plugin mounts one volume of a pod. The name of the plugin must be
// escaped.
func (h *Host) GetPodVolumeDir(pod types.UID, plugin, volume string) string {
	return h.cfg.Layout.PodVolume(pod, plugin, volume)
}

// GetPodPluginDir returns the directory for the data of a plugin about one pod.
func (h *Host) GetPodPluginDir(pod types.UID, plugin string) string {
	return h.cfg.Layout.PodPlugin(pod, plugin)
}

// GetPodVolumeDeviceDir returns the directory in which a plugin maps the block volumes of a pod.
func (h *Host) GetPodVolumeDeviceDir(pod types.UID, plugin string) string {
	return h.cfg.Layout.PodVolumeDevice(pod, plugin)
}
