package containerspec

import (
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	volumevalidation "k8s.io/kubernetes/pkg/volume/validation"
)

// relativeSubpath returns the mount's subPath, or its subPathExpr expanded with the container's environment; "" if it
// has neither. The result is relative and without ".."; anything else is an error.
func relativeSubpath(mount v1.VolumeMount, envs []kubecontainer.EnvVar) (string, error) {
	sub := mount.SubPath
	if mount.SubPathExpr != "" {
		expanded, err := kubecontainer.ExpandContainerVolumeMounts(mount, envs)
		if err != nil {
			return "", err
		}
		sub = expanded
	}
	if sub == "" {
		return "", nil
	}
	if filepath.IsAbs(sub) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	if err := volumevalidation.ValidatePathNoBacksteps(sub); err != nil {
		return "", fmt.Errorf("unable to provision SubPath `%s`: %w", sub, err)
	}
	return sub, nil
}

// subpathRequest is a request for a safe path to one sub-path of a mounted volume.
type subpathRequest struct {
	podDir    string
	container string
	// mount is the name of the volume mount, index its place in the container: both name the bind mount.
	mount string
	index int
	// volume is the name of the volume in the volume manager (a persistent volume's own name).
	volume string
	// root is the path of the volume's mount on the host, sub the path below it.
	root, sub string
}

// bindSubpath creates the sub-path if it is missing, and bind-mounts it to a path that cannot be redirected. Errors of
// the safe operations are only logged: their text would show the pod's owner paths of the host.
func (h *Helper) bindSubpath(logger klog.Logger, req subpathRequest, cleanups *cleanupFuncs) (string, error) {
	if err := h.makeSubpath(logger, req); err != nil {
		return "", err
	}
	path, cleanUp, err := h.cfg.Subpaths.PrepareSafeSubpath(subpath.Subpath{
		VolumeMountIndex: req.index,
		Path:             filepath.Join(req.root, req.sub),
		VolumeName:       req.volume,
		VolumePath:       req.root,
		PodDir:           req.podDir,
		ContainerName:    req.container,
	})
	cleanups.add(cleanUp)
	if err != nil {
		logger.Error(err, "Failed to prepare subPath for volumeMount of the container", "containerName", req.container,
			"volumeMountName", req.mount)
		return "", fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", req.mount, req.container)
	}
	return path, nil
}

// makeSubpath creates a missing sub-path with the mode of the volume's root. The runtime would create it with another
// mode, and a pod with an fsGroup could not write there.
func (h *Helper) makeSubpath(logger klog.Logger, req subpathRequest) error {
	path := filepath.Join(req.root, req.sub)
	exists, err := h.cfg.HostFiles.PathExists(path)
	if err != nil {
		// If it cannot be used, the bind mount fails.
		logger.Error(err, "Could not determine if subPath exists, will not attempt to change its permissions", "path", path)
		return nil
	}
	if exists {
		return nil
	}
	mode, err := h.cfg.HostFiles.GetMode(req.root)
	if err != nil {
		return err
	}
	if err := h.cfg.Subpaths.SafeMakeDir(req.sub, req.root, mode); err != nil {
		logger.Error(err, "Failed to create subPath directory for volumeMount of the container",
			"containerName", req.container, "volumeMountName", req.mount)
		return fmt.Errorf("failed to create subPath directory for volumeMount %q of container %q", req.mount, req.container)
	}
	return nil
}

// cleanupFuncs are functions to be called after a container was started, or after its start failed.
type cleanupFuncs []func()

func (c *cleanupFuncs) add(f func()) {
	if f != nil {
		*c = append(*c, f)
	}
}

// run calls all functions, the last first.
func (c cleanupFuncs) run() {
	for i := len(c) - 1; i >= 0; i-- {
		c[i]()
	}
}

// function returns run, or nil if there is nothing to do.
func (c cleanupFuncs) function() func() {
	if len(c) == 0 {
		return nil
	}
	return c.run
}
