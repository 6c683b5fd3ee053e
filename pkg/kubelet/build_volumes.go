package kubelet

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/userns"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/util/volumepathhandler"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/containerspec"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/runtimestate"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/volumehost"
)

// runtimeSilence is how long the runtime may not respond before the node is not Ready; as in stock.
const runtimeSilence = 30 * time.Second

// volumeParts are the volumes and the user ID ranges of pods.
type volumeParts struct {
	state          *runtimestate.State
	plugins        *volume.VolumePluginMgr
	manager        volumemanager.VolumeManager
	userNamespaces *userns.UsernsManager
}

func (b *build) makeVolumes(ctx context.Context) error {
	v := &b.volumes
	// The CSI plugin reports storage errors during its initialization, so the state is created before the runtime.
	v.state = runtimestate.New(runtimeSilence)
	host := volumehost.New(b.volumeHost(ctx))
	var err error
	if v.plugins, err = host.InitPlugins(b.Volumes.Plugins, b.Volumes.DynamicProber); err != nil {
		return err
	}
	v.manager = volumemanager.NewVolumeManager(
		b.Config.EnableControllerAttachDetach, b.Identity.NodeName, b.pods.manager, b.pods.lifecycle, b.Clients.Kube,
		v.plugins,
		b.Machine.Mounter, b.Machine.HostUtil, b.layout.Pods(), b.Observability.Recorder,
		volumepathhandler.NewBlockVolumePathHandler())
	var idsPerPod *int64
	if b.Config.UserNamespaces != nil {
		idsPerPod = b.Config.UserNamespaces.IDsPerPod
	}
	ranges := containerspec.UserNamespaceHost{
		Layout: b.layout, RuntimeHandlers: v.state.RuntimeHandlers, MaxPods: int(b.Config.MaxPods),
		Enabled: b.enabled(features.UserNamespacesSupport),
	}
	v.userNamespaces, err = userns.MakeUserNsManager(klog.FromContext(ctx), ranges, idsPerPod)
	return err
}

func (b *build) volumeHost(ctx context.Context) volumehost.Config {
	cfg := volumehost.Config{
		Layout: b.layout, Client: b.Clients.Kube, Nodes: b.sources.view, Recorder: b.Observability.Recorder,
		Mounts: volumehost.Mounts{Mounter: b.Machine.Mounter, HostUtil: b.Machine.HostUtil, Subpather: b.Machine.Subpather},
		Objects: volumehost.Objects{
			Tokens: b.objects.tokens, TrustBundles: b.objects.trustBundles, PodCertificates: b.objects.podCertificates,
		},
		StorageError: b.volumes.state.SetStorageError,
		Stopped:      ctx.Done(),
	}
	if b.objects.secrets != nil {
		cfg.Objects.Secrets, cfg.Objects.ConfigMaps = b.objects.secrets, b.objects.configMaps
	}
	return cfg
}

func (b *build) volumeManager() component {
	manager, ready := b.volumes.manager, b.sources.ready
	return runs("volume manager", func(ctx context.Context) { manager.Run(ctx, ready) })
}
