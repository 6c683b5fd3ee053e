package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PodMemoryUsed returns how much memory all pods together use, in bytes, including the page cache.
func (c *Cluster) PodMemoryUsed() (int64, error) {
	for _, file := range []string{
		filepath.Join("/sys/fs/cgroup", c.config.podsCgroup(), "memory.current"),
		filepath.Join("/sys/fs/cgroup/memory", c.config.podsCgroup(), "memory.usage_in_bytes"),
	} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		used, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read memory use of pods: %w", err)
		}
		return used, nil
	}
	return 0, errors.New("read memory use of pods: no control group of pods")
}

// PodsCgroup returns the path of the cgroup of all pods, below the mount points of the hierarchies.
func (c *Cluster) PodsCgroup() string { return c.config.podsCgroup() }
