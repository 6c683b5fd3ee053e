package containerspec

import (
	"fmt"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// mountContext is what the mounts of one container depend on beside its specification.
type mountContext struct {
	request
	// envs is the complete environment, for subPathExpr.
	envs []kubecontainer.EnvVar
	// supportsRRO tells whether the pod's runtime handler can mount recursively read-only.
	supportsRRO bool
	done        *cleanUps
}

// mounts returns the container's volume mounts in the order of its specification, then the hosts file. The clean-up is
// for after the start of the container and nil if there is nothing to do; after an error it has been done already.
func (h *Helper) mounts(
	logger klog.Logger, req request, envs []kubecontainer.EnvVar,
) ([]kubecontainer.Mount, func(), error) {
	var (
		done   cleanUps
		mounts []kubecontainer.Mount
	)
	mc := mountContext{request: req, envs: envs, supportsRRO: h.supportsRecursiveReadOnly(logger, req.pod), done: &done}
	for i := range req.container.VolumeMounts {
		mount, err := h.mount(logger, mc, i)
		if err != nil {
			done.run()
			return nil, nil, err
		}
		mounts = append(mounts, mount)
	}
	if wantsHostsMount(req) {
		logger.V(3).Info("Creating hosts mount for container", "pod", klog.KObj(req.pod), "containerName", req.container.Name,
			"podIPs", req.podIPs)
		mount, err := h.hostsMount(req)
		if err != nil {
			done.run()
			return nil, nil, err
		}
		mounts = append(mounts, mount)
	}
	return mounts, done.function(), nil
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
		// A volume that the agent manages is labeled by the runtime, unless it was mounted with the label.
		SELinuxRelabel: attributes.Managed && attributes.SELinuxRelabel && !volume.SELinuxLabeled,
		Propagation:    propagation,
	}, nil
}

// mountSource is where the content of a mount comes from: a path of the host, or a path inside an image.
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
	}, mc.done)
	return mountSource{hostPath: path}, err
}

// absolute makes a relative mount path start at the container's root; the API allows both.
func absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join("/", path)
}
