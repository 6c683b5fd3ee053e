package kit

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The versions of cgroups.
const (
	CgroupsV1 = "v1"
	CgroupsV2 = "v2"
)

// CgroupMemory names the files of memory cgroups.
type CgroupMemory struct {
	// Version is CgroupsV1 or CgroupsV2.
	Version string
	// Pods is the directory of the cgroup of all pods.
	Pods string
	// Usage and Limit are names of files.
	Usage, Limit string
	// Unlimited is what is written to the file of the limit for none.
	Unlimited string
	// inactive is the key of the inactive page cache in memory.stat, of a cgroup and all below.
	inactive string
}

// FindCgroupMemory returns the files of this machine. podsCgroup is the path of the cgroup of all pods, below the mount
// point.
func FindCgroupMemory(podsCgroup string) (CgroupMemory, error) {
	for _, m := range []CgroupMemory{
		{CgroupsV1, "/sys/fs/cgroup/memory", "memory.usage_in_bytes", "memory.limit_in_bytes", "-1", "total_inactive_file"},
		{CgroupsV2, "/sys/fs/cgroup", "memory.current", "memory.max", "max", "inactive_file"},
	} {
		m.Pods = filepath.Join(m.Pods, podsCgroup)
		if _, err := os.Stat(filepath.Join(m.Pods, m.Usage)); err == nil {
			return m, nil
		}
	}
	return CgroupMemory{}, fmt.Errorf("no cgroup %s with a memory controller", podsCgroup)
}

// Available returns what all pods may still use, in bytes, as the signal allocatableMemory.available counts it.
func (m CgroupMemory) Available() (int64, error) {
	usage, err := ReadCgroupNumber(m.Pods, m.Usage)
	if err != nil {
		return 0, err
	}
	limit, err := ReadCgroupNumber(m.Pods, m.Limit)
	if err != nil {
		return 0, err
	}
	stat, err := os.ReadFile(filepath.Join(m.Pods, "memory.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(stat)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == m.inactive {
			inactive, err := strconv.ParseInt(value, 10, 64)
			return limit - usage + inactive, err
		}
	}
	return 0, errors.New("memory.stat has no " + m.inactive)
}

// NodeMemoryAvailable returns what may still be used on this machine, in bytes, as the signal memory.available counts
// it on cgroup v2: what is free, and the inactive page cache.
func NodeMemoryAvailable() (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	var sum int64
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "MemFree:" && fields[0] != "Inactive(file):" {
			continue
		}
		kibibytes, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/meminfo: %w", err)
		}
		sum += kibibytes << 10
	}
	return sum, nil
}

// ReadCgroupNumber reads a file of a cgroup's directory that holds one number.
func ReadCgroupNumber(dir, name string) (int64, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return ParseCgroupNumber(data)
}

// ParseCgroupNumber parses the content of such a file. No limit, which is "max" on v2, is the greatest number.
func ParseCgroupNumber(data []byte) (int64, error) {
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return math.MaxInt64, nil
	}
	return strconv.ParseInt(text, 10, 64)
}
