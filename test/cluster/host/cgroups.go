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

// cgroupMount is where Linux distributions mount the control group trees.
const cgroupMount = "/sys/fs/cgroup"

// cgroupWait is how long processes in a control group may take to go after
// SIGKILL, and the kernel to let the group be removed.
const cgroupWait = 20 * time.Second

// cgroup2Controllers are what pods need of cgroup v2, as far as there is.
var cgroup2Controllers = []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"}

// MakeCgroup makes the control group called name in every hierarchy, ready to
// hold groups of its own.
func MakeCgroup(name string) error {
	for _, root := range cgroupDirs("/") {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make control group: %w", err)
		}
		// In v1, a cpuset without processors and memory nodes takes nobody.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if data, err := os.ReadFile(filepath.Join(root, file)); err == nil {
				if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
					return fmt.Errorf("prepare control group: %w", err)
				}
			}
		}
		// In v2, controllers are handed down one by one; not all exist.
		for _, controller := range cgroup2Controllers {
			for _, dir := range []string{root, dir} {
				_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
			}
		}
	}
	return nil
}

// CgroupProcesses lists the processes in the control group called name (such
// as "/kubepods") and below, in every hierarchy.
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

// PodCgroups finds the control groups of pods in the one called name, whatever
// their class: folders called "podUID", as the driver cgroupfs makes them. The
// result holds all folders of each pod, one per hierarchy, by its UID.
func PodCgroups(name string) (map[string][]string, error) {
	found := map[string][]string{}
	for _, root := range cgroupDirs(name) {
		if err := addPodCgroups(root, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// addPodCgroups adds those below root. What goes while it looks is not there.
func addPodCgroups(root string, found map[string][]string) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.IsDir() {
			return err
		}
		uid, ok := strings.CutPrefix(entry.Name(), "pod")
		if !ok || uid == "" {
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

// RemoveCgroup kills every process in the control group called name and
// removes the group with all below it, in every hierarchy.
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

// removeCgroupDir removes a group after those inside it. Files in it are the
// kernel's and go with it.
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

// cgroupDirs are the folders of the group called name that exist: one on a
// machine with cgroup v2, one per hierarchy with v1.
func cgroupDirs(name string) []string {
	candidates := []string{filepath.Join(cgroupMount, name)}
	entries, _ := os.ReadDir(cgroupMount)
	for _, entry := range entries {
		candidates = append(candidates, filepath.Join(cgroupMount, entry.Name(), name))
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
