package fence

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Found is a fence that an earlier agent has left on a pod.
type Found struct {
	// Memory and PIDs are the limits, 0 and -1 if they are not fences.
	Memory, PIDs int64
	// Swap is true if swap has a limit. It may be all that is left: a pod that has nearly reached its own limit of memory
	// is not given another one.
	Swap bool
}

// None is true if no limit is a fence.
func (f Found) None() bool { return f == Found{PIDs: -1} }

// Find returns the fences on a pod cgroup, none if it does not exist. A limit that the pod has anyway, or that is above
// it, is no fence: by chance it may be recognisable. To lower it would make the kernel reclaim memory in the caller.
// Expected has the limits without a fence; 0 for unlimited.
func (f *Fencer) Find(cgroup string, expected Expected) (Found, error) {
	found := Found{PIDs: -1}
	memory, err := f.present("memory", cgroup, f.memoryNames()[0])
	pids, other := f.present("pids", cgroup, "pids.max")
	if err == nil && ours(memory) && memory < expected.memory() {
		found.Memory = memory
	}
	if other == nil && oursPIDs(pids) && pids < expected.pids() {
		found.PIDs = pids
	}
	var swap error
	found.Swap, swap = f.findSwap(cgroup)
	return found, errors.Join(ignoreGone(err), ignoreGone(other), ignoreMissing(ignoreGone(swap)))
}

// findSwap reports whether the swap of a pod cgroup has a limit of this package; the kubelet gives limits to containers
// only. On cgroup v2 the value says nothing: there the pod has memory.oom.group as well, which others may set alone.
func (f *Fencer) findSwap(cgroup string) (bool, error) {
	limit, err := f.present("memory", cgroup, f.memoryNames()[1])
	if err != nil || !f.config.Unified {
		return ours(limit), err
	}
	whole, err := f.present("memory", cgroup, "memory.oom.group")
	return limit < unlimited && whole == 1, err
}

// Expected has the limits of a pod without a fence.
type Expected struct {
	// Memory in bytes, 0 for unlimited.
	Memory int64
	// PIDs is the number of processes, 0 or less for unlimited.
	PIDs int64
}

// memory returns the limit that the kernel returns: a multiple of the page size.
func (e Expected) memory() int64 {
	if e.Memory <= 0 {
		return unlimited
	}
	return e.Memory / pageSize * pageSize
}

func (e Expected) pids() int64 {
	if e.PIDs <= 0 {
		return unlimited
	}
	return e.PIDs
}

// Lift replaces fences that Find has returned by the expected limits. A cgroup that does not exist any more has none.
// Swap gets the limit that it has without a fence, which is none, and the OOM killer ends single processes again.
func (f *Fencer) Lift(cgroup string, found Found, expected Expected) error {
	var errs []error
	names := f.memoryNames()
	if found.Memory > 0 || found.Swap {
		errs = append(errs, ignoreMissing(f.raise("memory", cgroup, names[1], unlimited)))
		if f.config.Unified {
			errs = append(errs, f.raise("memory", cgroup, "memory.oom.group", 0))
		}
	}
	if found.Memory > 0 {
		errs = append(errs, f.raise("memory", cgroup, names[0], expected.memory()))
	}
	if found.PIDs >= 0 {
		errs = append(errs, f.raise("pids", cgroup, "pids.max", expected.pids()))
	}
	for i := range errs {
		errs[i] = ignoreGone(errs[i])
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("lifting the fence of cgroup %s: %w", cgroup, err)
	}
	return nil
}

// memoryNames returns the files with the limits of memory and of swap.
func (f *Fencer) memoryNames() [2]string {
	if f.config.Unified {
		return [2]string{"memory.max", "memory.swap.max"}
	}
	return [2]string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
}

func (f *Fencer) present(controller, cgroup, name string) (int64, error) {
	file, err := openFile(filepath.Join(f.config.Mounts[controller], cgroup), name, "", unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer file.close()
	return file.read()
}

func (f *Fencer) raise(controller, cgroup, name string, value int64) error {
	unset := "max"
	if controller == "memory" && !f.config.Unified {
		unset = "-1"
	}
	file, err := openFile(filepath.Join(f.config.Mounts[controller], cgroup), name, unset, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer file.close()
	return file.write(value)
}

func ignoreGone(err error) error {
	if isGone(err) {
		return nil
	}
	return err
}
