package housekeeping

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/util/removeall"
	"k8s.io/mount-utils"
)

// orphanDirs removes the directories of pods that are neither configured nor running, and have no worker: the worker of
// a pod that is not configured any more may still be starting a container, or stopping the pod. User data may be
// mounted below the directories, so nothing is removed unless volume manager, volume directories and mount table all
// show that nothing is mounted there; volume directories are removed only if they are empty; and no removal crosses a
// mount point.
type orphanDirs struct {
	disk    *Disk
	workers Remover
}

func (orphanDirs) Name() string { return "orphaned pod directories" }

// errMounted is the error if volumes of an orphan are still mounted, which is usual for a pod that was stopped
// recently.
var errMounted = errors.New("volumes are not cleaned up")

func (t orphanDirs) Run(ctx context.Context, r *round) error {
	orphans, err := t.find(r)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	mounts := mountTable{mounter: t.disk.mounter, root: t.disk.layout.Pods()}
	var failed []error
	found, left := 0, 0
	for _, uid := range orphans {
		end, ok := t.workers.BeginRemoval(uid)
		if !ok {
			continue
		}
		found++
		err := t.remove(ctx, uid, &mounts)
		end()
		switch {
		case err == nil:
			logger.V(3).Info("Orphaned pod found, removed its directory", "podUID", uid)
			continue
		case errors.Is(err, errMounted):
			logger.V(3).Info("Orphaned pod found, but volumes are not cleaned up", "podUID", uid, "reason", err)
		default:
			logger.V(5).Info("Orphan pod", "podUID", uid, "err", err)
			failed = append(failed, fmt.Errorf("orphaned pod %q found, but %w", uid, err))
		}
		left++
	}
	metrics.OrphanPodCleanedVolumes.Set(float64(found))
	metrics.OrphanPodCleanedVolumesErrors.Set(float64(left))
	return firstOf(failed)
}

// firstOf returns the first of several errors with their number, since they are mostly alike and repeated in every
// round.
func firstOf(errs []error) error {
	if len(errs) < 2 {
		return errors.Join(errs...)
	}
	return fmt.Errorf("%w (and %d similar errors; turn up verbosity to see them)", errs[0], len(errs)-1)
}

func (t orphanDirs) find(r *round) ([]types.UID, error) {
	used := sets.New[types.UID]()
	for _, pod := range r.pods {
		used.Insert(pod.UID)
	}
	for _, pod := range r.running {
		used.Insert(pod.ID)
	}
	for uid := range r.known {
		used.Insert(uid)
	}
	found, err := t.disk.ListPodsFromDisk()
	if err != nil {
		return nil, fmt.Errorf("listing pod directories: %w", err)
	}
	var orphans []types.UID
	for _, uid := range found {
		if !used.Has(uid) {
			orphans = append(orphans, uid)
		}
	}
	return orphans, nil
}

// remove removes a pod's directory, volumes first. After an error the next round removes the rest.
func (t orphanDirs) remove(ctx context.Context, uid types.UID, mounts *mountTable) error {
	if t.disk.VolumesExist(ctx, uid) {
		return errMounted
	}
	if err := mounts.requireNone(uid); err != nil {
		return err
	}
	// The removals below check all directories for mounts except for the pod's own.
	if err := t.requireNotMounted(t.disk.layout.Pod(uid)); err != nil {
		return err
	}
	if err := t.removeVolumes(uid); err != nil {
		return err
	}
	return t.removeRest(uid)
}

// removeVolumes removes the directories of volumes, which must be empty: a file in one was written while the volume was
// not mounted, or is on a volume whose mount was not detected.
func (t orphanDirs) removeVolumes(uid types.UID) error {
	volumes, err := t.disk.volumePaths(uid)
	if err != nil {
		return fmt.Errorf("error occurred during reading volume dir from disk: %w", err)
	}
	var failed []error
	for _, path := range volumes {
		if err := t.removeBelow(uid, path, syscall.Rmdir); err != nil {
			failed = append(failed, fmt.Errorf("failed to rmdir() volume at path %v: %w", path, err))
		}
	}
	subpaths, err := t.disk.subpathPaths(uid)
	if err != nil {
		failed = append(failed, fmt.Errorf("error occurred during reading of volume-subpaths dir from disk: %w", err))
	}
	for _, path := range subpaths {
		// The mount point of a file is a file.
		if err := t.removeBelow(uid, path, os.Remove); err != nil {
			failed = append(failed, fmt.Errorf("failed to remove subpath at path %v: %w", path, err))
		}
	}
	if err := removeall.RemoveDirsOneFilesystem(t.disk.mounter, t.disk.layout.PodVolumes(uid)); err != nil {
		failed = append(failed, fmt.Errorf("error occurred when trying to remove the volumes dir: %w", err))
	}
	return errors.Join(failed...)
}

// removeBelow removes path in a pod's directory, unless one of its parents is a mount point.
func (t orphanDirs) removeBelow(uid types.UID, path string, remove func(string) error) error {
	for dir := filepath.Dir(path); dir != t.disk.layout.Pod(uid); dir = filepath.Dir(dir) {
		if err := t.requireNotMounted(dir); err != nil {
			return err
		}
	}
	return remove(path)
}

func (t orphanDirs) requireNotMounted(dir string) error {
	notMounted, err := t.disk.mounter.IsLikelyNotMountPoint(dir)
	if err != nil {
		return fmt.Errorf("%s cannot be checked for a mount: %w", dir, err)
	}
	if !notMounted {
		return fmt.Errorf("%w: %s is mounted", errMounted, dir)
	}
	return nil
}

// removeRest removes the other files and the pod's directory. The volumes directory must not exist any more; if it was
// created again, nothing is removed.
func (t orphanDirs) removeRest(uid types.UID) error {
	dir := t.disk.layout.Pod(uid)
	if _, err := os.Lstat(t.disk.layout.PodVolumes(uid)); !errors.Is(err, os.ErrNotExist) {
		return errors.New("volumes subdir was found after it was removed")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("error occurred during reading the pod dir from disk: %w", err)
	}
	var failed []error
	for _, e := range entries {
		if err := removeall.RemoveAllOneFilesystem(t.disk.mounter, filepath.Join(dir, e.Name())); err != nil {
			failed = append(failed,
				fmt.Errorf("error occurred when trying to remove subdir %q: %w", filepath.Join(dir, e.Name()), err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	if err := syscall.Rmdir(dir); err != nil {
		return fmt.Errorf("error occurred when trying to remove the pod directory: %w", err)
	}
	return nil
}

// mountTable is the mount table of the kernel, read once per round and only if there is an orphan. Unlike a check of
// single paths it includes bind mounts of files and of directories of the same file system on every kernel, and reading
// it does not block on servers.
type mountTable struct {
	mounter mount.Interface
	root    string

	read   bool
	err    error
	mounts []mount.MountPoint
}

// escapes replaces characters as the kernel does in the mount table.
var escapes = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)

// requireNone returns an error if anything is mounted on the pod's directory or below it, or if the table cannot be
// read.
func (m *mountTable) requireNone(uid types.UID) error {
	if !m.read {
		m.read = true
		m.load()
	}
	if m.err != nil {
		return m.err
	}
	// Paths in the table have no symbolic links. The kernel escapes them; the mounter may return them either way.
	for _, dir := range []string{filepath.Join(m.root, string(uid)), escapes.Replace(filepath.Join(m.root, string(uid)))} {
		for _, mp := range m.mounts {
			if mp.Path == dir || strings.HasPrefix(mp.Path, dir+"/") {
				return fmt.Errorf("%w: %s is mounted", errMounted, mp.Path)
			}
		}
	}
	return nil
}

func (m *mountTable) load() {
	if m.root, m.err = filepath.EvalSymlinks(m.root); m.err != nil {
		return
	}
	if m.mounts, m.err = m.mounter.List(); m.err != nil {
		m.err = fmt.Errorf("the mount table cannot be read: %w", m.err)
	}
}
