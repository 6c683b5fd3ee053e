package cgroupkill

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tree has the mount points of the hierarchies in which pods have cgroups. On v1 a process can be in a pod's cgroup in
// one hierarchy and not in another.
type tree []string

func newTree(c Config) tree {
	// The freezer comes first: a process that is in several hierarchies is listed with its cgroup there.
	mounts := append([]string{c.Mounts["freezer"]}, slices.Sorted(maps.Values(c.Mounts))...)
	var t tree
	for _, mount := range mounts {
		if mount != "" && !slices.Contains(t, mount) {
			t = append(t, mount)
		}
	}
	if c.Unified && len(t) > 1 {
		t = t[:1]
	}
	return t
}

// member is a process in a cgroup.
type member struct {
	pid int
	// cgroup is the path below the listed cgroup.
	cgroup string
}

// pids lists the processes in a cgroup and below, ordered by PID. A process of another PID namespace has PID 0. With an
// error the list may be incomplete. A cgroup that does not exist, or is removed meanwhile, has no processes.
func (t tree) pids(cgroup string) ([]member, error) {
	var found []member
	var errs []error
	for _, mount := range t {
		root := filepath.Join(mount, cgroup)
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case isRemoved(err):
				return nil
			case err != nil:
				return err
			case !entry.IsDir():
				return nil
			}
			pids, err := readPIDs(filepath.Join(path, "cgroup.procs"))
			below := strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
			for _, pid := range pids {
				found = append(found, member{pid: pid, cgroup: below})
			}
			return err
		})
		errs = append(errs, err)
	}
	// The sort is stable, so that the order of the hierarchies decides between two cgroups of one process.
	slices.SortStableFunc(found, func(a, b member) int { return cmp.Compare(a.pid, b.pid) })
	return slices.CompactFunc(found, func(a, b member) bool { return a.pid == b.pid }), errors.Join(errs...)
}

// readPIDs reads a file cgroup.procs. In a threaded cgroup it cannot be read (EOPNOTSUPP); its processes are listed in
// the parent.
func readPIDs(path string) ([]int, error) {
	data, err := os.ReadFile(path)
	if isRemoved(err) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for line := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			return pids, fmt.Errorf("%s: %w", path, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// isRemoved is true for the errors of a cgroup that was removed.
func isRemoved(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}
