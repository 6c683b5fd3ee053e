package collect

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const kb = int64(1024)

// both is one and the same node on cgroup v1 and v2; stalls is its /proc/pressure/memory.
func both(t *testing.T, stalls string) map[string]*Memory {
	t.Helper()
	v1 := map[string]string{
		"memory/memory.usage_in_bytes": "614400\n",
		"memory/memory.stat": "total_inactive_file 102400\ntotal_active_file 204800\n" +
			"total_dirty 30720\ntotal_writeback 10240\n",
		"memory/kubepods/memory.usage_in_bytes": "300000\n",
		"memory/kubepods/memory.limit_in_bytes": "500000\n",
		"memory/kubepods/memory.stat": "total_inactive_file 1000\ntotal_active_file 4000\n" +
			"total_dirty 500\ntotal_writeback 100\n",
	}
	v2 := map[string]string{
		"cgroup.controllers":      "memory\n",
		"memory.stat":             "inactive_file 102400\nactive_file 204800\nfile_dirty 30720\nfile_writeback 10240\n",
		"kubepods/memory.current": "300000\n",
		"kubepods/memory.max":     "500000\n",
		"kubepods/memory.stat":    "inactive_file 1000\nactive_file 4000\nfile_dirty 500\nfile_writeback 100\n",
	}
	readers := map[string]*Memory{}
	for version, files := range map[string]map[string]string{"v1": v1, "v2": v2} {
		files["meminfo"] = meminfoFile
		if stalls != "" {
			files["stalls"] = stalls
		}
		root := tree(t, files)
		m, err := NewMemory(Options{CgroupRoot: root, Meminfo: filepath.Join(root, "meminfo"),
			Stalls: filepath.Join(root, "stalls"), PodsCgroup: "kubepods"})
		if err != nil {
			t.Fatal(err)
		}
		readers[version] = m
	}
	return readers
}

// TestCounting: 1000 kB of which 600 kB are used; see meminfoFile.
func TestCounting(t *testing.T) {
	const stalled = "some avg10=90.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=5.01 avg60=0.00 avg300=0.00 total=7\n"
	all := snapshot.Counting{Reclaimable: true, Swap: true, Hugepages: true}
	for name, test := range map[string]struct {
		how        snapshot.Counting
		stalls     string
		node, pods int64
	}{
		"stock": {snapshot.Counting{}, calm, 500 * kb, 201000},
		"reclaimable": {snapshot.Counting{Reclaimable: true}, calm, (400 + 100 + 200/2 - 30 - 10) * kb, 200000 + 1000 +
			4000/2 - 500 - 100},
		"free swap, which anonymous memory bounds": {snapshot.Counting{Swap: true}, calm, (500 + 300) * kb, 201000},
		"huge pages":                              {snapshot.Counting{Hugepages: true}, calm, (500 - 50) * kb, 201000},
		"everything":                              {all, calm, (560 + 300 - 50) * kb, 202400},
		"everything while tasks stand still":      {all, stalled, (500 - 50) * kb, 201000},
		"everything without pressure information": {all, "", (500 - 50) * kb, 201000},
		"everything with nonsense in it":          {all, "full avg10=lots\n", (500 - 50) * kb, 201000},
	} {
		t.Run(name, func(t *testing.T) {
			for version, m := range both(t, test.stalls) {
				r := m.ReadMemory(test.how)
				if r.Node.Err != nil || r.Node.Available != test.node || r.Node.Capacity != 1000*kb {
					t.Errorf("%s: node %+v, want %d", version, r.Node, test.node)
				}
				if r.Pods.Err != nil || r.Pods.Available != test.pods {
					t.Errorf("%s: pods %+v, want %d", version, r.Pods, test.pods)
				}
				// What the counters say must be what a reading says.
				if c, err := m.Counters(test.how); err != nil || 1000*kb-int64(c.Node)+int64(c.NodeSpare) != test.node {
					t.Errorf("%s: counters %+v, %v", version, c, err)
				}
			}
		})
	}
}

// TestSwapOfPods: what a pod has in swap counts as used by it where free swap counts as available.
func TestSwapOfPods(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"v1": {
			"memory/memory.usage_in_bytes": "614400\n", "memory/memory.stat": "total_inactive_file 102400\n",
			"memory/kubepods/pod1/memory.usage_in_bytes": "1000\n",
			"memory/kubepods/pod1/memory.stat":           "total_rss 700\ntotal_swap 50\ntotal_inactive_file 100\n",
		},
		"v2": {
			"cgroup.controllers": "memory\n", "memory.stat": "inactive_file 102400\n",
			"kubepods/pod1/memory.current": "1000\n", "kubepods/pod1/memory.stat": "anon 700\ninactive_file 100\n",
			"kubepods/pod1/memory.swap.current": "50\n",
		},
		"v2 without accounting of swap": {
			"cgroup.controllers": "memory\n", "memory.stat": "inactive_file 102400\n",
			"kubepods/pod1/memory.current": "1050\n", "kubepods/pod1/memory.stat": "anon 750\ninactive_file 100\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files["meminfo"] = meminfoFile
			root := tree(t, files)
			m, err := NewMemory(Options{CgroupRoot: root, Meminfo: filepath.Join(root, "meminfo"), PodsCgroup: "kubepods"})
			if err != nil {
				t.Fatal(err)
			}
			if p := m.ReadMemory(snapshot.Counting{Swap: true}).ByPod["1"]; p == nil || p.WorkingSet.Amount != 950 ||
				p.Anonymous.Amount != 750 {
				t.Errorf("%+v", p)
			}
			if p := m.ReadMemory(snapshot.Counting{}).ByPod["1"]; p == nil ||
				(p.WorkingSet.Amount != 900 && name != "v2 without accounting of swap") {
				t.Errorf("swap is counted though it should not be: %+v", p)
			}
		})
	}
}

func TestDirtyPagesAreNotReclaimable(t *testing.T) {
	if got := (cache{inactive: 10, active: 10, dirty: 100}).spare(snapshot.Counting{Reclaimable: true}); got != 0 {
		t.Errorf("%d bytes", got)
	}
}

func TestMissingFieldsAreNamed(t *testing.T) {
	err := new(meminfo).parse([]byte("MemTotal: 1 kB\nAnonPages: 1 kB\nCached: 1 kB\nBuffers: x kB\n"))
	for _, key := range []string{"Buffers:", "Inactive(file):", "Active(file):", "Dirty:", "Writeback:"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%v does not name %s", err, key)
		}
	}
	if _, err := cacheOf([]byte("inactive_file 1\nactive_file 1\nfile_dirty 1\n"), v2Names.cache,
		snapshot.Counting{Reclaimable: true}); !errors.Is(err, errNoField) {
		t.Errorf("%v", err)
	}
}

func TestStallsAreTold(t *testing.T) {
	for _, m := range both(t, calm) {
		if share, err := m.Stalls(); err != nil || share != 5 {
			t.Errorf("%v, %v", share, err)
		}
	}
	for _, m := range both(t, "") {
		if _, err := m.Stalls(); err == nil {
			t.Error("no error")
		}
	}
}

// FuzzKernelFiles: whatever stands in the kernel's files, nothing panics, and every figure is an amount that memory can
// have.
func FuzzKernelFiles(f *testing.F) {
	f.Add([]byte("max\n"), "anon")
	f.Add([]byte("anon 12\nfile 99999999999999999999\n"), "file")
	f.Add([]byte("inactive_file 12\nactive_file 9223372036854775807\nfile_dirty 0\nfile_writeback 1\n"), "inactive_file")
	f.Add([]byte(calm), "full")
	f.Add([]byte(meminfoFile), "MemTotal:")
	f.Fuzz(func(t *testing.T, data []byte, key string) {
		bounded := func(what string, n int64) {
			if n < 0 || n > math.MaxInt64/4 {
				t.Errorf("%s: %d", what, n)
			}
		}
		if n, err := parseCount(data); err == nil && n < 0 {
			t.Errorf("negative count %d", n)
		}
		if n, ok := field(data, key); ok {
			bounded(key, n)
		}
		if share, err := fullShare(data); err == nil && (math.IsNaN(share) || share < 0 || share > 100) {
			t.Errorf("%v percent", share)
		}
		how := snapshot.Counting{Reclaimable: true, Swap: true, Hugepages: true}
		if c, err := cacheOf(data, v2Names.cache, how); err == nil {
			bounded("spare", c.spare(how))
		}
		if i := (meminfo{}); i.parse(data) == nil {
			bounded("used", i.used())
			bounded("spare", i.page.spare(how))
			if n := i.beyond(how); n < -math.MaxInt64/4 || n > math.MaxInt64/4 {
				t.Errorf("beyond: %d", n)
			}
		}
		namesBelow("/kubepods.slice").podUID(key)
	})
}
