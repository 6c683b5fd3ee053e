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

// relativeSubpath returns the mount's subPath, or its subPathExpr with the container's environment filled in; "" if it
// has neither. The result is relative and has no ".." in it, although a container's variables may say otherwise.
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

// subpathRequest asks for a safe path to one sub-path of a mounted volume.
type subpathRequest struct {
	podDir    string
	container string
	// mount is the name of the volume mount, index its place in the container: both name the bind mount.
	mount string
	index int
	// volume is the name of the volume as the volume manager has it (a persistent volume's own name).
	volume string
	// root is where the volume is mounted on the host, sub the path below it.
	root, sub string
}

// bindSubpath makes the sub-path if it is missing and binds it to a path that nobody can redirect. Errors of the safe
// operations go to the log only: their text would tell the pod's owner about the host's file system.
func (h *Helper) bindSubpath(logger klog.Logger, req subpathRequest, done *cleanUps) (string, error) {
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
	done.add(cleanUp)
	if err != nil {
		logger.Error(err, "Failed to prepare subPath for volumeMount of the container", "containerName", req.container,
			"volumeMountName", req.mount)
		return "", fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", req.mount, req.container)
	}
	return path, nil
}

// makeSubpath makes a missing sub-path with the mode of the volume's root. Left to the runtime it would get another
// mode, and a pod with an fsGroup could not write there.
func (h *Helper) makeSubpath(logger klog.Logger, req subpathRequest) error {
	path := filepath.Join(req.root, req.sub)
	exists, err := h.cfg.HostFiles.PathExists(path)
	if err != nil {
		// Whether it can be used shows when it is bound.
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

// cleanUps collects what is to be done once a container was started, or could not be.
type cleanUps []func()

func (c *cleanUps) add(f func()) {
	if f != nil {
		*c = append(*c, f)
	}
}

// run does everything, last first.
func (c cleanUps) run() {
	for i := len(c) - 1; i >= 0; i-- {
		c[i]()
	}
}

// function returns run, or nil if there is nothing to do.
func (c cleanUps) function() func() {
	if len(c) == 0 {
		return nil
	}
	return c.run
}
