package app

import (
	"context"
	"slices"

	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/csi"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/fc"
	"k8s.io/kubernetes/pkg/volume/flexvolume"
	gitrepo "k8s.io/kubernetes/pkg/volume/git_repo"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/image"
	"k8s.io/kubernetes/pkg/volume/iscsi"
	"k8s.io/kubernetes/pkg/volume/local"
	"k8s.io/kubernetes/pkg/volume/nfs"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/utils/exec"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
)

// makeVolumes lists the volume plugins. The agent initializes them later with a volume host.
func (p *process) makeVolumes(ctx context.Context) error {
	p.deps.Machine.HostUtil = hostutil.NewHostUtil()
	p.deps.Machine.Subpather = subpath.New(p.deps.Machine.Mounter)
	p.deps.Volumes = kubelet.VolumePlugins{
		Plugins:       volumePlugins(p.settings.FeatureGates),
		DynamicProber: flexvolume.GetDynamicPluginProber(ctx, p.settings.Config.VolumePluginDir, exec.New()),
	}
	return nil
}

// volumePlugins returns all in-tree plugins. Exactly one supports each volume.
func volumePlugins(gates featuregate.FeatureGate) []volume.VolumePlugin {
	var none volume.VolumeConfig
	plugins := slices.Concat(
		// volumes on the node with the lifetime of the pod
		emptydir.ProbeVolumePlugins(), configmap.ProbeVolumePlugins(), secret.ProbeVolumePlugins(),
		downwardapi.ProbeVolumePlugins(), projected.ProbeVolumePlugins(), gitrepo.ProbeVolumePlugins(),
		// volumes on the node
		hostpath.ProbeVolumePlugins(none), local.ProbeVolumePlugins(),
		// volumes on other machines
		nfs.ProbeVolumePlugins(none), iscsi.ProbeVolumePlugins(), fc.ProbeVolumePlugins(), csi.ProbeVolumePlugins(),
	)
	if gates.Enabled(features.ImageVolume) {
		plugins = append(plugins, image.ProbeVolumePlugins()...)
	}
	return plugins
}
