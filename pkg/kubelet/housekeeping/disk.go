package housekeeping

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
	"k8s.io/mount-utils"
	utilstrings "k8s.io/utils/strings"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
)

// The mount point of a CSI volume is one directory deeper than those of other volumes. (Stock's package csi has these
// names; its import would add a third of the agent to the dependencies of this package.)
const (
	csiPlugin   = "kubernetes.io/csi"
	csiMountDir = "mount"
)

// MountedVolumes is the state of the volume manager.
type MountedVolumes interface {
	// HasPossiblyMountedVolumesForPod is true also if the state of a volume is uncertain.
	HasPossiblyMountedVolumesForPod(pod volumetypes.UniquePodName) bool
}

// Disk reads the directories of pods. It is safe for concurrent use.
type Disk struct {
	layout  paths.Layout
	mounter mount.Interface
	volumes MountedVolumes
}

// NewDisk returns a Disk. All arguments are required.
func NewDisk(layout paths.Layout, mounter mount.Interface, volumes MountedVolumes) *Disk {
	return &Disk{layout: layout, mounter: mounter, volumes: volumes}
}

// ListPodsFromDisk returns the UIDs of the pods that have a directory, in ascending order.
func (d *Disk) ListPodsFromDisk() ([]types.UID, error) {
	entries, err := os.ReadDir(d.layout.Pods())
	if err != nil {
		return nil, err
	}
	var uids []types.UID
	for _, e := range entries {
		if e.IsDir() {
			uids = append(uids, types.UID(e.Name()))
		}
	}
	return uids, nil
}

// VolumesExist is true while a volume of the pod is mounted according to the volume manager or the disk, and if the
// disk cannot be read. The disk does not show volumes of plugins that mount nothing.
func (d *Disk) VolumesExist(ctx context.Context, uid types.UID) bool {
	if d.volumes.HasPossiblyMountedVolumesForPod(volumetypes.UniquePodName(uid)) {
		return true
	}
	logger := klog.FromContext(ctx)
	mounted, err := d.mountedVolumes(uid)
	if err != nil {
		logger.Error(err, "Pod found, but error occurred during checking mounted volumes from disk", "podUID", uid)
		return true
	}
	if len(mounted) > 0 {
		logger.V(4).Info("Pod found, but volumes are still mounted on disk", "podUID", uid, "paths", mounted)
	}
	return len(mounted) > 0
}

func (d *Disk) mountedVolumes(uid types.UID) ([]string, error) {
	found, err := d.volumePaths(uid)
	if err != nil {
		return nil, err
	}
	var mounted []string
	for _, path := range found {
		notMounted, err := d.mounter.IsLikelyNotMountPoint(path)
		if err != nil {
			return nil, fmt.Errorf("fail to check mount point %q: %w", path, err)
		}
		if !notMounted {
			mounted = append(mounted, path)
		}
	}
	return mounted, nil
}

// volumePaths returns the mount points of the pod's volumes, mounted or not: <volumes>/<plugin>/<volume>, for CSI the
// directory "mount" below that, if it exists.
func (d *Disk) volumePaths(uid types.UID) ([]string, error) {
	root := d.layout.PodVolumes(uid)
	plugins, err := subdirs(root)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, plugin := range plugins {
		volumes, err := names(filepath.Join(root, plugin))
		if err != nil {
			return nil, err
		}
		isCSI := utilstrings.UnescapeQualifiedName(plugin) == csiPlugin
		for _, volume := range volumes {
			path := filepath.Join(root, plugin, volume)
			if isCSI {
				path = filepath.Join(path, csiMountDir)
				if exists, _ := mount.PathExists(path); !exists {
					continue
				}
			}
			found = append(found, path)
		}
	}
	return found, nil
}

// subpathPaths returns the mount points of parts of volumes for single containers:
// <volume-subpaths>/<volume>/<container>/<index>.
func (d *Disk) subpathPaths(uid types.UID) ([]string, error) {
	root := d.layout.PodVolumeSubpaths(uid)
	volumes, err := subdirs(root)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, volume := range volumes {
		containers, err := subdirs(filepath.Join(root, volume))
		if err != nil {
			return nil, err
		}
		for _, container := range containers {
			dir := filepath.Join(root, volume, container)
			indexes, err := names(dir)
			if err != nil {
				return nil, err
			}
			for _, index := range indexes {
				found = append(found, filepath.Join(dir, index))
			}
		}
	}
	return found, nil
}

// subdirs returns the names in dir, none if it does not exist. An entry that is not a directory is an error: the agent
// has not created it, and a symbolic link could point outside of the pod's directory.
func subdirs(dir string) ([]string, error) {
	self, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !self.IsDir() {
		return nil, fmt.Errorf("could not read directory %s: not a directory", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			return nil, fmt.Errorf("could not read directory %s: not a directory", filepath.Join(dir, e.Name()))
		}
		out = append(out, e.Name())
	}
	return out, nil
}

// names returns the names in dir without a stat of the entries, which may be mounts of servers that do not answer.
func names(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("could not read directory %s: %w", dir, err)
	}
	defer func() { _ = f.Close() }()
	out, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("could not read directory %s: %w", dir, err)
	}
	slices.Sort(out)
	return out, nil
}
