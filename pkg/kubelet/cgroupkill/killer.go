// Package cgroupkill lists and kills the processes of a cgroup and of all cgroups below it, without the container
// runtime. On cgroup v2 it writes cgroup.kill (Linux 5.14). On v1, which has no such file, each is killed through a
// pidfd (Linux 5.3) that was opened before the process was found in the cgroup, so that no other process is killed if
// its PID is reused. If there are new processes afterwards, the freezer keeps them from forking while they are killed.
// See cgroup-v2.rst and cgroup-v1/freezer-subsystem.rst of the kernel, and pidfd_open(2).
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

// retryPeriod is how long killed processes have to end before they are listed and killed again.
const retryPeriod = 20 * time.Millisecond

// Config has the mount points of cgroups and of proc.
type Config struct {
	// Unified is true when the pods' cgroups are in the v2 hierarchy.
	Unified bool
	// Mounts are the mount points of the hierarchies by controller. On v2 all are the same.
	Mounts map[string]string
	// Proc is the mount point of proc, /proc if empty.
	Proc string
}

// Killer lists and kills the processes of cgroups. Its methods are safe for concurrent use, also for the same cgroup.
type Killer struct {
	tree    tree
	proc    proc
	freezer freezer
	unified bool
	// onOpened is called after the pidfds were opened, and before the processes of the cgroup are listed again. Tests set
	// it.
	onOpened func()
}

// New returns a Killer. It opens no file.
func New(c Config) *Killer {
	if c.Proc == "" {
		c.Proc = "/proc"
	}
	k := &Killer{
		tree: newTree(c), proc: proc(c.Proc), unified: c.Unified, freezer: freezerV1(c.Mounts["freezer"]),
		onOpened: func() {},
	}
	if c.Unified && len(k.tree) > 0 {
		k.freezer = freezerV2(k.tree[0])
	}
	return k
}

// errNotAPod is the error for a path that is not that of a pod's cgroup. The check prevents that a wrong path kills
// processes of the node.
var errNotAPod = errors.New("must be the absolute path of a pod's cgroup, at least two levels below the root")

func validateCgroup(cgroup string) error {
	if filepath.Clean(cgroup) != cgroup || !strings.HasPrefix(cgroup, "/") || strings.Count(cgroup, "/") < 2 {
		return fmt.Errorf("cgroup %q: %w", cgroup, errNotAPod)
	}
	return nil
}

// Kill kills all processes in the cgroup and below, new ones included, and returns when there are none. It returns an
// error when ctx ends before: the remaining processes were signalled, but are in uninterruptible sleep, for example. It
// thaws frozen processes. A cgroup that does not exist has no processes. Kill never kills the calling process, nor
// process 1.
func (k *Killer) Kill(ctx context.Context, cgroup string) error {
	if err := validateCgroup(cgroup); err != nil {
		return err
	}
	released := ended()
	for {
		killErr := k.killOnce(cgroup)
		released = k.release(cgroup, released)
		remaining, err := k.Processes(cgroup)
		if err == nil && len(remaining) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d processes are left in cgroup %s: %w",
				len(remaining), cgroup, context.Cause(ctx)), killErr, err)
		case <-time.After(retryPeriod):
		}
	}
}

// ended returns a closed channel.
func ended() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// killOnce kills the processes that are in the cgroup at this moment.
func (k *Killer) killOnce(cgroup string) error {
	if k.unified && len(k.tree) > 0 {
		switch err := writeFile(filepath.Join(k.tree[0], cgroup, "cgroup.kill"), "1"); {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EOPNOTSUPP):
			return err
		}
	}
	// Most processes do not fork while they are being killed. To freeze them first would take up to freezeTimeout, and a
	// frozen process does not end before it is thawed.
	all, err := k.signalAll(cgroup)
	if err == nil && all {
		return k.freezer.thaw(cgroup)
	}
	// Frozen processes cannot fork. Those that cannot be frozen are in uninterruptible sleep and do not fork either.
	k.freezer.freeze(cgroup)
	_, err = k.signalAll(cgroup)
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
