// Package cgroupkill lists and kills the processes of a cgroup and of all cgroups below it, past the container runtime.
// It knows cgroup v2 (cgroup.kill, Linux 5.14) and v1, where there is nothing like it: the freezer keeps the processes
// from forking meanwhile, and each is killed through a pidfd (Linux 5.3) that was opened before the process was seen in
// the cgroup, so that a PID which was given to another process is never hit. See cgroup-v2.rst and
// cgroup-v1/freezer-subsystem.rst of the kernel, pidfd_open(2).
package cgroupkill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// roundPeriod is how long killed processes get to vanish before they are looked at again.
const roundPeriod = 20 * time.Millisecond

// Config says where things are.
type Config struct {
	// Unified is true when the pods' cgroups are in the v2 hierarchy.
	Unified bool
	// Mounts are the mount points of the hierarchies by controller; on v2 any will do, all are the same.
	Mounts map[string]string
	// Proc is where proc is mounted, /proc if empty.
	Proc string
}

// Killer lists and kills. Its methods may be called at any time from any goroutine; two kills of one cgroup at once do
// no harm.
type Killer struct {
	tree    tree
	proc    proc
	freezer freezer
	unified bool
	// opened is called between opening pidfds and looking again whether their processes are in the cgroup; for tests.
	opened func()
}

// New returns a killer; nothing is opened.
func New(c Config) *Killer {
	if c.Proc == "" {
		c.Proc = "/proc"
	}
	k := &Killer{
		tree: newTree(c), proc: proc(c.Proc), unified: c.Unified, freezer: freezerV1(c.Mounts["freezer"]), opened: func() {},
	}
	if c.Unified && len(k.tree) > 0 {
		k.freezer = freezerV2(k.tree[0])
	}
	return k
}

// errNotAPod keeps a mistake of the caller from killing the node.
var errNotAPod = errors.New("must be the absolute path of a pod's cgroup, at least two levels below the root")

func check(cgroup string) error {
	if filepath.Clean(cgroup) != cgroup || !strings.HasPrefix(cgroup, "/") || strings.Count(cgroup, "/") < 2 {
		return fmt.Errorf("cgroup %q: %w", cgroup, errNotAPod)
	}
	return nil
}

// Kill kills every process in the cgroup and below, new ones included, and returns when there is none left; with an
// error when ctx ends before that. Such processes have been signalled and end as soon as the kernel lets them. Paused
// ones are thawed. A cgroup that does not exist has no processes. The process that calls is never killed, nor is
// process 1.
func (k *Killer) Kill(ctx context.Context, cgroup string) error {
	if err := check(cgroup); err != nil {
		return err
	}
	for {
		killErr := k.round(cgroup)
		left, err := k.Processes(cgroup)
		if err == nil && len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d processes are left in cgroup %s: %w", len(left), cgroup, context.Cause(ctx)),
				killErr, err)
		case <-time.After(roundPeriod):
		}
	}
}

// round signals whatever is there now.
func (k *Killer) round(cgroup string) error {
	if k.unified && len(k.tree) > 0 {
		switch err := writeFile(filepath.Join(k.tree[0], cgroup, "cgroup.kill"), "1"); {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EOPNOTSUPP):
			return err
		}
	}
	// Frozen processes cannot fork. That some cannot be frozen (they sleep uninterruptibly) does not matter: those do not
	// fork either.
	k.freezer.freeze(cgroup)
	err := k.signal(cgroup)
	return errors.Join(err, k.freezer.thaw(cgroup))
}

// writeFile writes to a file that must exist already.
func writeFile(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
