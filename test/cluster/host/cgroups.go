package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// cgroupMount is where Linux distributions mount the cgroup hierarchies.
const cgroupMount = "/sys/fs/cgroup"

// cgroupWait is how long processes in a cgroup may take to end after SIGKILL, and the kernel to allow its removal.
const cgroupWait = 20 * time.Second

// cgroup2Controllers are the controllers of cgroup v2 that pods need, as far as the kernel has them.
var cgroup2Controllers = []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"}

// MakeCgroup creates the cgroup called name in every hierarchy, and prepares it for child cgroups.
func MakeCgroup(name string) error {
	for _, root := range cgroupDirs("/") {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make control group: %w", err)
		}
		// In v1, a cpuset without CPUs and memory nodes accepts no process.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if data, err := os.ReadFile(filepath.Join(root, file)); err == nil {
				if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
					return fmt.Errorf("prepare control group: %w", err)
				}
			}
		}
		// In v2, each controller is enabled for the children one by one; not all exist.
		for _, controller := range cgroup2Controllers {
			for _, dir := range []string{root, dir} {
				_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
			}
		}
	}
	return nil
}

// CgroupProcesses returns the PIDs in the cgroup called name (such as "/kubepods") and below, in every hierarchy.
func CgroupProcesses(name string) ([]int, error) {
	var pids []int
	for _, dir := range cgroupDirs(name) {
		found, err := processesBelow(dir)
		if err != nil {
			return nil, err
		}
		pids = append(pids, found...)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// PodCgroups returns the cgroups of pods of any class below the one called name: directories called "podUID", as the
// cgroupfs driver names them, or "kubepods-CLASS-podUID.slice", as that of systemd does. The result has all directories
// of each pod, one per hierarchy, by its UID.
func PodCgroups(name string) (map[string][]string, error) {
	found := map[string][]string{}
	for _, root := range cgroupDirs(name) {
		if err := addPodCgroups(root, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// addPodCgroups adds those below root. A cgroup that is removed meanwhile is left out.
func addPodCgroups(root string, found map[string][]string) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.IsDir() {
			return err
		}
		uid := PodOfCgroup(entry.Name())
		if uid == "" {
			return nil
		}
		found[uid] = append(found[uid], path)
		return fs.SkipDir
	})
	if err != nil {
		return fmt.Errorf("list control groups of pods in %s: %w", root, err)
	}
	return nil
}

// PodOfCgroup returns the UID of the pod whose cgroup has that name, without the path, "" if it is not that of a pod.
// In names of slices a dash separates the slices above, and underscores stand for the dashes of the UID.
func PodOfCgroup(name string) string {
	if slice, ok := strings.CutSuffix(name, ".slice"); ok {
		_, uid, _ := strings.Cut(slice, "-pod")
		return strings.ReplaceAll(uid, "_", "-")
	}
	uid, _ := strings.CutPrefix(name, "pod")
	if uid == name {
		return ""
	}
	return uid
}

// RemoveCgroup kills every process in the cgroup called name and removes the cgroup with all below it, in every
// hierarchy.
func RemoveCgroup(ctx context.Context, name string) error {
	if filepath.Clean("/"+name) == "/" {
		return errors.New("the root of all control groups is never removed")
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, cgroupWait, true, func(context.Context) (bool, error) {
		last = removeCgroupOnce(name)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("remove control group %s: %w", name, errors.Join(last, err))
	}
	return nil
}

func removeCgroupOnce(name string) error {
	pids, err := CgroupProcesses(name)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	for _, dir := range cgroupDirs(name) {
		if err := removeCgroupDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroupDir removes a cgroup after its children. The files in it are the kernel's and are removed with it.
func removeCgroupDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeCgroupDir(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// cgroupDirs returns the existing directories of the cgroup called name: one on a machine with cgroup v2, one per
// hierarchy with v1.
func cgroupDirs(name string) []string {
	candidates := []string{filepath.Join(cgroupMount, name)}
	// Only the root of v2 has this file below the mount point. There, other directories are cgroups, not hierarchies.
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err != nil {
		entries, _ := os.ReadDir(cgroupMount)
		for _, entry := range entries {
			candidates = append(candidates, filepath.Join(cgroupMount, entry.Name(), name))
		}
	}
	return slices.DeleteFunc(candidates, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
		return err != nil
	})
}

func processesBelow(dir string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.Name() != "cgroup.procs" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) &&
			!errors.Is(err, syscall.EOPNOTSUPP) {
			return err
		}
		for line := range strings.Lines(string(data)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list processes in %s: %w", dir, err)
	}
	return pids, nil
}
