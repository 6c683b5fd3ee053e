package containerspec

import (
	"fmt"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// mountContext is the input for the mounts of one container.
type mountContext struct {
	request
	// envs is the complete environment, for subPathExpr.
	envs []kubecontainer.EnvVar
	// supportsRRO is true if the pod's runtime handler supports recursive read-only mounts.
	supportsRRO bool
	cleanups    *cleanupFuncs
}

// mounts returns the container's volume mounts in the order of its specification, then the hosts file. The caller has
// to call the returned function after the start of the container, unless it is nil. After an error nothing is to be
// cleaned up.
func (h *Helper) mounts(
	logger klog.Logger, req request, envs []kubecontainer.EnvVar,
) ([]kubecontainer.Mount, func(), error) {
	var (
		cleanups cleanupFuncs
		mounts   []kubecontainer.Mount
	)
	supportsRRO := h.supportsRecursiveReadOnly(logger, req.pod)
	mc := mountContext{request: req, envs: envs, supportsRRO: supportsRRO, cleanups: &cleanups}
	for i := range req.container.VolumeMounts {
		mount, err := h.mount(logger, mc, i)
		if err != nil {
			cleanups.run()
			return nil, nil, err
		}
		mounts = append(mounts, mount)
	}
	if needsHostsMount(req) {
		logger.V(3).Info("Creating hosts mount for container", "pod", klog.KObj(req.pod), "containerName", req.container.Name,
			"podIPs", req.podIPs)
		mount, err := h.hostsMount(req)
		if err != nil {
			cleanups.run()
			return nil, nil, err
		}
		mounts = append(mounts, mount)
	}
	return mounts, cleanups.function(), nil
}

// mount returns the i-th volume mount of the container.
func (h *Helper) mount(logger klog.Logger, mc mountContext, i int) (kubecontainer.Mount, error) {
	spec := mc.container.VolumeMounts[i]
	volume, known := mc.volumes[spec.Name]
	if !known || volume.Mounter == nil {
		logger.Error(nil, "Mount cannot be satisfied for the container, because the volume is missing or the volume "+
			"mounter (vol.Mounter) is nil",
			"containerName", mc.container.Name, "ok", known, "volumeMounter", spec)
		return kubecontainer.Mount{},
			fmt.Errorf("cannot find volume %q to mount into container %q", spec.Name, mc.container.Name)
	}
	source, err := h.mountSource(logger, mc, i)
	if err != nil {
		return kubecontainer.Mount{}, err
	}
	propagation, err := criPropagation(spec.MountPropagation)
	if err != nil {
		return kubecontainer.Mount{}, err
	}
	recursive, err := h.recursiveReadOnly(spec, mc.supportsRRO)
	if err != nil {
		return kubecontainer.Mount{}, err
	}
	logger.V(5).Info("Mount has propagation", "pod", klog.KObj(mc.pod), "containerName", mc.container.Name,
		"volumeMountName", spec.Name, "propagation", propagation)

	attributes := volume.Mounter.GetAttributes()
	return kubecontainer.Mount{
		Name:              spec.Name,
		ContainerPath:     absolute(spec.MountPath),
		HostPath:          source.hostPath,
		Image:             source.image,
		ImageSubPath:      source.imageSubPath,
		ReadOnly:          spec.ReadOnly || attributes.ReadOnly,
		RecursiveReadOnly: recursive,
		// The runtime labels a volume that the agent manages, unless it was mounted with the label.
		SELinuxRelabel: attributes.Managed && attributes.SELinuxRelabel && !volume.SELinuxLabeled,
		Propagation:    propagation,
	}, nil
}

// mountSource is the source of a mount: a path of the host, or a path inside an image.
type mountSource struct {
	hostPath     string
	image        *runtimeapi.ImageSpec
	imageSubPath string
}

func (h *Helper) mountSource(logger klog.Logger, mc mountContext, i int) (mountSource, error) {
	spec := mc.container.VolumeMounts[i]
	sub, err := relativeSubpath(spec, mc.envs)
	if err != nil {
		return mountSource{}, err
	}
	if h.cfg.Features.ImageVolume {
		if image := mc.images[spec.Name]; image != nil {
			return mountSource{image: image, imageSubPath: sub}, nil
		}
	}
	volume := mc.volumes[spec.Name]
	root, err := volumeutil.GetPath(volume.Mounter)
	if err != nil || sub == "" {
		return mountSource{hostPath: root}, err
	}
	path, err := h.bindSubpath(logger, subpathRequest{
		podDir:    h.cfg.Layout.Pod(mc.pod.UID),
		container: mc.container.Name,
		mount:     spec.Name,
		index:     i,
		volume:    volume.InnerVolumeSpecName,
		root:      root,
		sub:       sub,
	}, mc.cleanups)
	return mountSource{hostPath: path}, err
}

// absolute returns a mount path relative to the container's root; the API allows relative paths.
func absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join("/", path)
}
