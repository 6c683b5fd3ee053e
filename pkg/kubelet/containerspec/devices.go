package containerspec

import (
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// Cgroup permissions of block volumes: mknod, read, write.
const (
	devicePermissions         = "mrw"
	readOnlyDevicePermissions = "r"
)

// blockDevices returns the raw block volumes of the container, without those that are not mapped yet.
func (h *Helper) blockDevices(logger klog.Logger, req request) ([]kubecontainer.DeviceInfo, error) {
	var devices []kubecontainer.DeviceInfo
	for _, spec := range req.container.VolumeDevices {
		device, err := h.blockDevice(logger, req, spec)
		if err != nil {
			return nil, err
		}
		if device != nil {
			devices = append(devices, *device)
		}
	}
	return devices, nil
}

func (h *Helper) blockDevice(logger klog.Logger, req request, spec v1.VolumeDevice) (*kubecontainer.DeviceInfo, error) {
	if !filepath.IsAbs(spec.DevicePath) {
		return nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", spec.DevicePath)
	}
	volume, known := req.volumes[spec.Name]
	if !known || volume.BlockVolumeMapper == nil {
		logger.Error(nil, "Block volume cannot be satisfied for container, because the volume is missing or the volume "+
			"mapper is nil", "containerName", req.container.Name, "device", spec)
		return nil, fmt.Errorf("cannot find volume %q to pass into container %q", spec.Name, req.container.Name)
	}
	link := filepath.Join(volume.BlockVolumeMapper.GetPodDeviceMapPath())
	mapped, err := h.cfg.BlockDevices.IsSymlinkExist(link)
	if err != nil || !mapped {
		return nil, err
	}
	permissions := devicePermissions
	if volume.ReadOnly {
		permissions = readOnlyDevicePermissions
	}
	logger.V(4).Info("Device will be attached to container in the corresponding path on host",
		"containerName", req.container.Name, "path", link)
	return &kubecontainer.DeviceInfo{PathOnHost: link, PathInContainer: spec.DevicePath, Permissions: permissions}, nil
}
