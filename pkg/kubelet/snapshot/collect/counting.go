package collect

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// stalledAbove is the share of time, in percent, for which all tasks stood still waiting for memory, above which the
// kernel's caches do not count as available: avg10 of "full" in /proc/pressure/memory (kernel,
// Documentation/accounting/psi.rst).
const stalledAbove = 5

// cache is what is known of the page cache of the node or of a cgroup, in bytes.
type cache struct{ inactive, active, dirty, writeback int64 }

// spare is what of it counts as available.
func (c cache) spare(how snapshot.Counting) int64 {
	if !how.Reclaimable {
		return c.inactive
	}
	return max(0, c.inactive+c.active/2-c.dirty-c.writeback)
}

// cacheOf reads memory.stat. Only inactive file pages must be there when nothing else is counted.
func cacheOf(stat []byte, keys cacheKeys, how snapshot.Counting) (c cache, err error) {
	if err := want(stat, keys.inactive, &c.inactive); err != nil || !how.Reclaimable {
		return c, err
	}
	return c, errors.Join(want(stat, keys.active, &c.active), want(stat, keys.dirty, &c.dirty),
		want(stat, keys.writeback, &c.writeback))
}

func want(data []byte, key string, value *int64) error {
	n, ok := field(data, key)
	if !ok {
		return fmt.Errorf("%w %q", errNoField, key)
	}
	*value = n
	return nil
}

var errNoField = errors.New("there is no field")

// inForce is what can be counted at this moment. What relies on the kernel to reclaim does not count while tasks stand
// still because of just that, nor when nobody can tell whether they do.
func (m *Memory) inForce(how snapshot.Counting) snapshot.Counting {
	if !how.Reclaimable && !how.Swap {
		return how
	}
	data, err := m.files.read(m.stalls)
	if err == nil {
		var share float64
		if share, err = fullShare(data); err == nil && share <= stalledAbove {
			return how
		}
	}
	return snapshot.Counting{Hugepages: how.Hugepages}
}

// Stalls tells how much of the time tasks stand still waiting for memory, in percent, or why nobody knows.
func (m *Memory) Stalls() (float64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, err := m.files.read(m.stalls)
	if err != nil {
		return 0, err
	}
	return fullShare(data)
}

// fullShare finds avg10 of the line "full avg10=0.00 avg60=0.00 avg300=0.00 total=0".
func fullShare(data []byte) (float64, error) {
	_, rest, found := bytes.Cut(data, []byte("full avg10="))
	if !found {
		return 0, fmt.Errorf("%w %q", errNoField, "full avg10")
	}
	value, _, _ := bytes.Cut(rest, []byte{' '})
	share, err := strconv.ParseFloat(string(value), 64)
	if err != nil || math.IsNaN(share) || share < 0 || share > 100 {
		return 0, fmt.Errorf("%w of percent: %.40q", errNoNumber, value)
	}
	return share, nil
}

// beyond is what counts on the whole node beside its page cache: free swap, as far as anonymous memory could go there,
// and what is reserved for huge pages as a negative amount.
func (i *meminfo) beyond(how snapshot.Counting) int64 {
	var sum int64
	if how.Swap {
		sum += min(i.swapFree, i.activeAnon+i.inactiveAnon)
	}
	if how.Hugepages {
		sum -= i.hugetlb
	}
	return sum
}

// meminfo is what is used of /proc/meminfo, in bytes.
type meminfo struct {
	total                              int64
	anon, cached, buffers, swapCached  int64
	page                               cache
	swapFree, activeAnon, inactiveAnon int64
	hugetlb                            int64
}

// used is the node's memory in the sense of a cgroup: anonymous memory and the page cache. It is what cgroup v1 says of
// the root and what stock counts on cgroup v2, where the root has no counter; kernel memory is not part of it.
func (i *meminfo) used() int64 { return i.anon + i.cached + i.buffers + i.swapCached }

// parseMeminfo fails for a field without which nothing can be said. Fields of what a kernel may be built without are
// zero then.
func parseMeminfo(data []byte) (i meminfo, err error) {
	for _, f := range []struct {
		key   string
		value *int64
	}{
		{"MemTotal:", &i.total}, {"AnonPages:", &i.anon}, {"Cached:", &i.cached}, {"Buffers:", &i.buffers},
		{"Inactive(file):", &i.page.inactive}, {"Active(file):", &i.page.active}, {"Dirty:", &i.page.dirty},
		{"Writeback:", &i.page.writeback},
	} {
		err = errors.Join(err, want(data, f.key, f.value))
	}
	i.swapCached, _ = field(data, "SwapCached:")
	i.swapFree, _ = field(data, "SwapFree:")
	i.activeAnon, _ = field(data, "Active(anon):")
	i.inactiveAnon, _ = field(data, "Inactive(anon):")
	i.hugetlb, _ = field(data, "Hugetlb:")
	return i, err
}
