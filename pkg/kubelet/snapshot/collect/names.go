package collect

import "strings"

// names are the files and keys of a cgroup version.
type names struct {
	usage, limit, stat string
	// swap is a key of memory.stat, swapFile a file of its own; one of them is empty.
	anonymous, swap, swapFile string
	cache                     cacheKeys
	rootUsageFromMeminfo      bool
}

// cacheKeys are keys of memory.stat about the page cache. File pages under writeback are not dirty any more.
type cacheKeys struct {
	inactive, active, dirty, writeback string
}

var (
	v1Names = names{
		usage: "memory.usage_in_bytes", limit: "memory.limit_in_bytes", stat: "memory.stat",
		anonymous: "total_rss", swap: "total_swap",
		cache: cacheKeys{"total_inactive_file", "total_active_file", "total_dirty", "total_writeback"},
	}
	v2Names = names{
		usage: "memory.current", limit: "memory.max", stat: "memory.stat",
		anonymous: "anon", swapFile: "memory.swap.current", rootUsageFromMeminfo: true,
		cache: cacheKeys{"inactive_file", "active_file", "file_dirty", "file_writeback"},
	}
)

// podUID finds the UID of a pod in the name of its cgroup: "pod<uid>" with the cgroupfs driver, and with the systemd driver
// "kubepods-burstable-pod<uid>.slice" where the dashes of the UID are written as underscores.
func podUID(name string) (string, bool) {
	if slice, ok := strings.CutSuffix(name, ".slice"); ok {
		i := strings.LastIndex(slice, "-pod")
		if i < 0 || !strings.HasPrefix(slice, "kubepods") {
			return "", false
		}
		return nonEmpty(strings.ReplaceAll(slice[i+len("-pod"):], "_", "-"))
	}
	uid, ok := strings.CutPrefix(name, "pod")
	if !ok {
		return "", false
	}
	return nonEmpty(uid)
}

func nonEmpty(s string) (string, bool) { return s, s != "" }

// isQOSClass tells whether a cgroup holds the pods of a QoS class.
func isQOSClass(name string) bool {
	switch name {
	case "burstable", "besteffort", "kubepods-burstable.slice", "kubepods-besteffort.slice":
		return true
	}
	return false
}
