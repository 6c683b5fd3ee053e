package fence

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

const (
	// nearFence is the distance to the fence, in bytes, from which on the pod has reached it: the kernel charges memory
	// in batches.
	nearFence = 1 << 20
	// leastCache is the amount of page cache, in bytes, from which on a pod at its fence is not about to be OOM-killed:
	// the kernel reclaims that first.
	leastCache = 8 << 20
)

// hit reports whether a process of the pod was OOM-killed since the fence was set, or the pod uses all that the fence
// leaves and has little page cache, or a fork has failed. The number of failed charges (memory.failcnt) is no sign:
// a charge that displaces page cache counts or not, depending on the kernel. Where another program has set a lower
// limit, that limit counts.
func (p *Fence) hit() (bool, error) {
	if p.limits.PIDs {
		return p.failedForks() > p.forks, nil
	}
	if p.readOOM(); p.killed || p.oom.Inside {
		return true, nil
	}
	for _, l := range p.caps {
		if l.atUsage {
			continue
		}
		usage, err := l.usage.read()
		if err != nil {
			return false, err
		}
		present, err := l.max.read()
		if err != nil {
			return false, err
		}
		if usage+nearFence >= min(present, l.value) {
			cache, err := p.pageCache()
			return cache < leastCache, err
		}
	}
	return false, nil
}

// failedForks returns how often a fork has failed at the limit. The kernel counts that in the cgroup of the process
// that forks (v1, and v2 before Linux 6.11).
func (p *Fence) failedForks() int64 {
	if !p.limits.PIDs {
		return 0
	}
	return p.sum("pids.events", "max")
}

// oomKills returns the number of processes of the pod that the OOM killer has killed. On v1 each cgroup counts only its
// own, so that the number falls when the cgroup of a container is removed.
func (p *Fence) oomKills() int64 {
	switch {
	case p.limits.PIDs:
		return 0
	case p.fencer.config.Unified:
		kills, _ := p.events.value("oom_kill")
		return kills
	}
	return p.sum("memory.oom_control", "oom_kill")
}

// sum returns the sum of a value over the cgroup of the pod and all below. What cannot be read does not count.
func (p *Fence) sum(name, key string) (sum int64) {
	_ = filepath.WalkDir(p.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			n, _ := keyed(filepath.Join(path, name), key)
			sum += n
		}
		return nil
	})
	return sum
}

// pageCache returns the file pages of the pod, without tmpfs.
func (p *Fence) pageCache() (int64, error) {
	prefix := "total_"
	if p.fencer.config.Unified {
		prefix = ""
	}
	path := filepath.Join(p.dir, "memory.stat")
	active, err := keyed(path, prefix+"active_file")
	inactive, other := keyed(path, prefix+"inactive_file")
	return active + inactive, errors.Join(err, other)
}

// errNoKey: a flat keyed file has no such line.
var errNoKey = errors.New("no such key")

// keyed returns the value of a key in a flat keyed file.
func keyed(path, key string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return valueOf(path, data, key)
}

// valueOf returns the value of a key in the content of a flat keyed file.
func valueOf(path string, data []byte, key string) (int64, error) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if name, value, ok := bytes.Cut(lines.Bytes(), []byte(" ")); ok && string(name) == key {
			return strconv.ParseInt(string(value), 10, 64)
		}
	}
	return 0, &fs.PathError{Op: "read " + key, Path: path, Err: errNoKey}
}
