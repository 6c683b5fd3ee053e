package collect

import (
	"path"
	"slices"
	"strings"
)

// names are the files and keys of a cgroup version.
type names struct {
	usage, limit, stat string
	// swap is a key of memory.stat, swapFile a file of its own; one of them is empty.
	anonymous, swap, swapFile string
	cache                     cacheKeys
	// unified is true for v2, where the root has a counter in a container only.
	unified bool
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
		anonymous: "anon", swapFile: "memory.swap.current", unified: true,
		cache: cacheKeys{"inactive_file", "active_file", "file_dirty", "file_writeback"},
	}
)

// cgroupNames recognizes cgroups below the cgroup of all pods. With the systemd driver the name of a slice begins with
// that of its parent, so that all of them begin with the name of the pods' cgroup, which depends on cgroupRoot of the
// KubeletConfiguration.
type cgroupNames struct {
	// parent is the name of the pods' cgroup without its suffix; used with the systemd driver only.
	parent  string
	systemd bool
}

const slice = ".slice"

var qosClasses = [...]string{"burstable", "besteffort"}

// namesBelow derives the names from the path of the pods' cgroup, as "/kubepods" or "/a.slice/a-kubepods.slice".
func namesBelow(podsCgroup string) cgroupNames {
	parent, systemd := strings.CutSuffix(path.Base(podsCgroup), slice)
	return cgroupNames{parent: parent, systemd: systemd}
}

// podUID returns the UID of a pod by the name of its cgroup: "pod<uid>" with the cgroupfs driver, and with the systemd
// driver, where the dashes of the UID are underscores, for example "kubepods-burstable-pod<uid>.slice".
func (n cgroupNames) podUID(name string) (string, bool) {
	if !n.systemd {
		uid, ok := strings.CutPrefix(name, "pod")
		return uid, ok && uid != ""
	}
	own, ok := n.ownPart(name)
	if !ok {
		return "", false
	}
	for _, class := range qosClasses {
		own = strings.TrimPrefix(own, class+"-")
	}
	uid, ok := strings.CutPrefix(own, "pod")
	return strings.ReplaceAll(uid, "_", "-"), ok && uid != ""
}

// isQOSClass reports whether a cgroup holds the pods of a QoS class.
func (n cgroupNames) isQOSClass(name string) bool {
	if n.systemd {
		var ok bool
		if name, ok = n.ownPart(name); !ok {
			return false
		}
	}
	return slices.Contains(qosClasses[:], name)
}

// ownPart returns what the name of a slice adds to the name of the pods' cgroup.
func (n cgroupNames) ownPart(name string) (string, bool) {
	name, isSlice := strings.CutSuffix(name, slice)
	own, isBelow := strings.CutPrefix(name, n.parent+"-")
	return own, isSlice && isBelow
}
