package collect

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// stalledAbove is a share of time in percent. The page cache does not count as available while all tasks stall on
// memory for a greater share: avg10 of "full" in /proc/pressure/memory (kernel, Documentation/accounting/psi.rst).
const stalledAbove = 5

// cache is the page cache of the node or of a cgroup, in bytes.
type cache struct{ inactive, active, dirty, writeback int64 }

// spare returns the part of it that counts as available.
func (c cache) spare(how snapshot.Counting) int64 {
	if !how.Reclaimable {
		return c.inactive
	}
	return max(0, c.inactive+c.active/2-c.dirty-c.writeback)
}

// cacheOf parses memory.stat. Only inactive file pages are required when nothing else is counted.
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

// inForce returns what counts as available at this time. Memory that the kernel has to reclaim does not count while
// tasks stall on reclaim, nor when that cannot be read.
func (m *Memory) inForce(how snapshot.Counting) snapshot.Counting {
	if !how.Reclaimable && !how.Swap {
		return how
	}
	data, err := m.files.read(&m.open.stalls)
	if err == nil {
		var share float64
		if share, err = fullShare(data); err == nil && share <= stalledAbove {
			return how
		}
	}
	return snapshot.Counting{Hugepages: how.Hugepages}
}

// Stalls returns the share of time for which all tasks stall on memory, in percent. It fails when pressure stall
// information cannot be read.
func (m *Memory) Stalls() (float64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, err := m.files.read(&m.open.stalls)
	if err != nil {
		return 0, err
	}
	return fullShare(data)
}

// fullShare parses avg10 of the line "full avg10=0.00 avg60=0.00 avg300=0.00 total=0".
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

// beyond returns what counts on the whole node in addition to its page cache: free swap, as far as there is anonymous
// memory to fill it, less the memory reserved for huge pages.
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

// meminfo has the fields of /proc/meminfo that are used, in bytes.
type meminfo struct {
	total                              int64
	anon, cached, buffers, swapCached  int64
	page                               cache
	swapFree, activeAnon, inactiveAnon int64
	hugetlb                            int64
}

// used returns the node's memory as a cgroup counts it: anonymous memory and the page cache. It equals the counter of
// the root on cgroup v1, and what stock counts on cgroup v2, where the root has no counter; it has no kernel memory.
func (i *meminfo) used() int64 { return i.anon + i.cached + i.buffers + i.swapCached }

// parse fails when a required field is missing. Fields that depend on how the kernel was built are zero then. It goes
// through the lines once: this is done up to 500 times a second.
func (i *meminfo) parse(data []byte) (err error) {
	*i = meminfo{}
	fields := [...]struct {
		key             string
		value           *int64
		optional, found bool
	}{
		{key: "MemTotal:", value: &i.total}, {key: "AnonPages:", value: &i.anon}, {key: "Cached:", value: &i.cached},
		{key: "Buffers:", value: &i.buffers}, {key: "Inactive(file):", value: &i.page.inactive},
		{key: "Active(file):", value: &i.page.active}, {key: "Dirty:", value: &i.page.dirty},
		{key: "Writeback:", value: &i.page.writeback}, {key: "SwapCached:", value: &i.swapCached, optional: true},
		{key: "SwapFree:", value: &i.swapFree, optional: true},
		{key: "Active(anon):", value: &i.activeAnon, optional: true},
		{key: "Inactive(anon):", value: &i.inactiveAnon, optional: true},
		{key: "Hugetlb:", value: &i.hugetlb, optional: true},
	}
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		for j := range fields {
			if value, found := valueOf(line, fields[j].key); found {
				*fields[j].value, fields[j].found = amountOf(value)
				break
			}
		}
	}
	for _, f := range fields {
		if !f.found && !f.optional {
			err = errors.Join(err, fmt.Errorf("%w %q", errNoField, f.key))
		}
	}
	return err
}
