package containerspec

import (
	"context"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// containerDirMode is the mode of the directory for a container's termination logs. The runtime manager creates the
// logs themselves, world-writable, one per container instance.
const containerDirMode os.FileMode = 0o750

// request is one container to be started, with data of its pod.
type request struct {
	pod       *v1.Pod
	container *v1.Container
	// hostname is the pod's short host name, domain its DNS domain or "".
	hostname, domain string
	// podIP is the first of podIPs in the runtime's order; both are empty before the sandbox has a network.
	podIP  string
	podIPs []string
	// volumes are the pod's mounted volumes by their names in the pod.
	volumes kubecontainer.VolumeMap
	// images are the pod's image volumes; nil if it has none.
	images kubecontainer.ImageVolumes
}

// GenerateRunContainerOptions returns the options of the container, and a function that the caller has to call after
// the container was started, unless it is nil. After an error nothing is to be cleaned up. The pod's directory must
// exist (see MakePodDataDirs): the hosts file is written there.
//
//nolint:revive // the runtime manager has this many parameters
func (h *Helper) GenerateRunContainerOptions(
	ctx context.Context, pod *v1.Pod, container *v1.Container, podIP string, podIPs []string,
	imageVolumes kubecontainer.ImageVolumes,
) (*kubecontainer.RunContainerOptions, func(), error) {
	logger := klog.FromContext(ctx)
	opts, err := h.cfg.Resources.GetResources(ctx, pod, container)
	if err != nil {
		return nil, nil, err
	}
	if opts == nil {
		opts = &kubecontainer.RunContainerOptions{}
	}
	req := request{pod: pod, container: container, podIP: podIP, podIPs: podIPs, images: imageVolumes}
	req.hostname, req.domain, err = h.GeneratePodHostNameAndDomain(logger, pod)
	if err != nil {
		return nil, nil, err
	}
	req.volumes = h.cfg.Volumes.GetMountedVolumesForPod(volumeutil.GetUniquePodName(pod))
	cleanUp, err := h.addPodOptions(ctx, req, opts)
	if err != nil {
		return nil, nil, err
	}
	return opts, cleanUp, nil
}

// addPodOptions adds the options of the pod's specification to those of what was allocated at admission.
func (h *Helper) addPodOptions(
	ctx context.Context, req request, opts *kubecontainer.RunContainerOptions,
) (func(), error) {
	logger := klog.FromContext(ctx)
	devices, err := h.blockDevices(logger, req)
	if err != nil {
		return nil, err
	}
	opts.Devices = append(opts.Devices, devices...)

	envs, err := h.environment(ctx, req)
	if err != nil {
		return nil, err
	}
	// The pod's own variables come after those of device plugins: the runtime uses the last one of a name.
	opts.Envs = append(opts.Envs, envs...)

	mounts, cleanUp, err := h.mounts(logger, req, opts.Envs)
	if err != nil {
		return nil, err
	}
	opts.Mounts = append(opts.Mounts, mounts...)
	opts.PodContainerDir = h.containerDir(logger, req.pod, req.container)
	return cleanUp, nil
}

// containerDir creates the directory for termination logs and returns it; it returns "" if the container has no
// termination log. A container whose directory cannot be created is started without a termination log.
func (h *Helper) containerDir(logger klog.Logger, pod *v1.Pod, container *v1.Container) string {
	if container.TerminationMessagePath == "" {
		return ""
	}
	dir := h.cfg.Layout.PodContainer(pod.UID, container.Name)
	if err := os.MkdirAll(dir, containerDirMode); err != nil {
		logger.Error(err, "Error on creating dir", "path", dir)
		return ""
	}
	return dir
}
