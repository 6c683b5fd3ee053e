package collect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// tree writes files below a directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// meminfoFile has 600 kB of anonymous memory and page cache, and as much again of what kernels keep for themselves.
const meminfoFile = `MemTotal:        1000 kB
MemFree:            0 kB
MemAvailable:     900 kB
Buffers:           20 kB
Cached:           270 kB
SwapCached:        10 kB
Active(anon):     120 kB
Inactive(anon):   180 kB
Active(file):     200 kB
Inactive(file):   100 kB
SwapTotal:        500 kB
SwapFree:         400 kB
Dirty:             30 kB
Writeback:         10 kB
AnonPages:        300 kB
Slab:             400 kB
HugePages_Total:    0
Hugetlb:           50 kB
`

const calm = "some avg10=30.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=5.00 avg60=40.00 avg300=0.00 total=7\n"

func TestReadMemory(t *testing.T) {
	tests := map[string]struct {
		files      map[string]string
		podsCgroup string
	}{
		"cgroup v1, cgroupfs": {map[string]string{
			"memory/memory.usage_in_bytes":                              "614400\n",
			"memory/memory.stat":                                        "inactive_file 1\ntotal_inactive_file 102400\n",
			"memory/kubepods/memory.usage_in_bytes":                     "300000\n",
			"memory/kubepods/memory.limit_in_bytes":                     "500000\n",
			"memory/kubepods/memory.stat":                               "total_inactive_file 100000\n",
			"memory/kubepods/besteffort/pod12-34/memory.stat":           "total_rss 50\ntotal_inactive_file 100\n",
			"memory/kubepods/besteffort/pod12-34/c/memory.stat":         "total_inactive_file 100\n",
			"memory/kubepods/besteffort/pod12-34/memory.usage_in_bytes": "1000\n",
			"memory/kubepods/podbroken/memory.usage_in_bytes":           "oops\n",
			"pids/kubepods/besteffort/pod12-34/pids.current":            "77\n",
		}, "/kubepods"},
		"cgroup v2, systemd": {map[string]string{
			"cgroup.controllers":            "memory\n",
			"memory.stat":                   "anon 1\ninactive_file 102400\n",
			"kubepods.slice/memory.current": "300000\n",
			"kubepods.slice/memory.max":     "500000\n",
			"kubepods.slice/memory.stat":    "inactive_file 100000\n",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice/memory.current": "1000\n",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice/pids.current":   "77\n",
			"kubepods.slice/kubepods-burstable.slice/" +
				"kubepods-burstable-pod12_34.slice/memory.stat": "anon 50\ninactive_file 100\n",
			"kubepods.slice/kubepods-burstable.slice/" +
				"kubepods-burstable-pod12_34.slice/cri-c.scope/memory.stat": "inactive_file 100\n",
		}, "/kubepods.slice"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.files["meminfo"] = meminfoFile
			root := tree(t, test.files)
			now := time.Unix(1000, 0).UTC()
			m, err := NewMemory(Options{CgroupRoot: root, Meminfo: filepath.Join(root, "meminfo"), PodsCgroup: test.podsCgroup,
				Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			r := m.ReadMemory(snapshot.Counting{})
			if want := (snapshot.Observation{Available: 1024000 - 614400 + 102400, Capacity: 1024000, At: now}); r.Node != want {
				t.Errorf("node %+v, want %+v", r.Node, want)
			}
			if want := (snapshot.Observation{Available: 300000, Capacity: 500000, At: now}); r.Pods != want {
				t.Errorf("pods %+v, want %+v", r.Pods, want)
			}
			p := r.ByPod[types.UID("12-34")]
			if len(r.ByPod) != 1 || p == nil || p.WorkingSet != snapshot.Known(snapshot.Bytes(900), now) ||
				p.Anonymous != snapshot.Known(snapshot.Bytes(50), now) {
				t.Errorf("pods %+v", r.ByPod)
			}
			if p != nil && p.Processes != snapshot.Known(snapshot.PIDs(77), now) {
				t.Errorf("processes %+v", p.Processes)
			}
			if c, err := m.Counters(snapshot.Counting{}); err != nil ||
				c != (snapshot.MemoryCounters{
					Node: 614400, Pods: 300000, NodeSpare: 102400, NodeCapacity: 1024000, At: now,
				}) {
				t.Errorf("counters %+v, %v", c, err)
			}
		})
	}
}

// A node in a container, as one of kind, has a root cgroup with a counter on v2 too. As with stock, what others use of
// the machine's memory does not count then.
func TestNodeInAContainer(t *testing.T) {
	root := tree(t, map[string]string{
		"meminfo": meminfoFile, "cgroup.controllers": "memory\n", "memory.current": "102400\n",
		"memory.stat": "anon 51200\nfile 51200\ninactive_file 20480\nactive_file 30720\nfile_dirty 1024\n" +
			"file_writeback 0\n",
	})
	m, err := NewMemory(Options{CgroupRoot: root, Meminfo: filepath.Join(root, "meminfo"), PodsCgroup: "/kubepods.slice"})
	if err != nil {
		t.Fatal(err)
	}
	r := m.ReadMemory(snapshot.Counting{}).Node
	if want := int64(1024000 - (102400 - 20480)); r.Err != nil || r.Available != want || r.Capacity != 1024000 {
		t.Errorf("%+v, want %d available", r, want)
	}
	c, err := m.Counters(snapshot.Counting{})
	if err != nil || c.Node != 102400 || c.NodeSpare != 20480 || c.NodeCapacity != 1024000 {
		t.Errorf("counters %+v, %v", c, err)
	}
}

// A virtual machine is given more memory or less while the agent runs: hot-plug, or a balloon.
func TestMemoryOfTheNodeChangesItsSize(t *testing.T) {
	root := tree(t, map[string]string{"meminfo": meminfoFile, "cgroup.controllers": "memory\n"})
	file := filepath.Join(root, "meminfo")
	m, err := NewMemory(Options{CgroupRoot: root, Meminfo: file, PodsCgroup: "/kubepods.slice"})
	if err != nil {
		t.Fatal(err)
	}
	before := m.ReadMemory(snapshot.Counting{}).Node
	for _, size := range []int64{2000, 700} {
		text := strings.Replace(meminfoFile, "1000 kB", fmt.Sprintf("%d kB", size), 1)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		want := before.Available + size<<10 - before.Capacity
		if got := m.ReadMemory(snapshot.Counting{}).Node; got.Capacity != size<<10 || got.Available != want {
			t.Errorf("%d kB: available %d of %d, want %d", size, got.Available, got.Capacity, want)
		}
		if c, err := m.Counters(snapshot.Counting{}); err != nil || int64(c.NodeCapacity) != size<<10 {
			t.Errorf("%d kB: counters %+v, %v", size, c, err)
		}
	}
}

// What is released at the date of an observation is in it: the date is not later than the amounts.
func TestObservationIsNotDatedAfterItsAmounts(t *testing.T) {
	root := tree(t, map[string]string{
		"meminfo": meminfoFile, "memory/memory.usage_in_bytes": "614400\n",
		"memory/kubepods/memory.usage_in_bytes": "300000\n", "memory/kubepods/memory.limit_in_bytes": "500000\n",
		"memory/kubepods/memory.stat": "total_inactive_file 0\n",
	})
	// All pods are read before the node.
	dated := []string{"memory/kubepods/memory.usage_in_bytes", "memory/memory.usage_in_bytes"}
	released := func() time.Time {
		if err := os.WriteFile(filepath.Join(root, dated[0]), []byte("1000\n"), 0o644); err != nil {
			t.Error(err)
		}
		dated = dated[1:]
		return time.Unix(1000, 0)
	}
	m, err := NewMemory(Options{CgroupRoot: root, Meminfo: filepath.Join(root, "meminfo"), PodsCgroup: "/kubepods",
		Now: released})
	if err != nil {
		t.Fatal(err)
	}
	r := m.ReadMemory(snapshot.Counting{})
	at := time.Unix(1000, 0).UTC()
	if want := (snapshot.Observation{Available: 1024000, Capacity: 1024000, At: at}); r.Node != want {
		t.Errorf("node %+v, want %+v", r.Node, want)
	}
	if want := (snapshot.Observation{Available: 500000 - 1000, Capacity: 500000, At: at}); r.Pods != want {
		t.Errorf("pods %+v, want %+v", r.Pods, want)
	}
}

// memory.stat of the root may lag by two seconds, /proc/meminfo does not: the page cache of the node is that of the
// latter, as it is in the counters.
func TestNodeIsNotReadFromStatisticsThatLag(t *testing.T) {
	for _, lagging := range []string{"inactive_file 0\n", "inactive_file 409600\n"} {
		root := tree(t, map[string]string{
			"meminfo": meminfoFile, "cgroup.controllers": "memory\n", "memory.stat": "anon 1\n" + lagging,
			"kubepods/memory.current": "1\n", "kubepods/memory.max": "500000\n",
			"kubepods/memory.stat": "inactive_file 0\n",
		})
		m, err := NewMemory(Options{CgroupRoot: root, Meminfo: filepath.Join(root, "meminfo"), PodsCgroup: "kubepods"})
		if err != nil {
			t.Fatal(err)
		}
		c, err := m.Counters(snapshot.Counting{})
		if err != nil {
			t.Fatal(err)
		}
		want := 1024000 - int64(c.Node) + int64(c.NodeSpare)
		for name, r := range map[string]snapshot.MemoryReading{
			"all pods": m.ReadMemory(snapshot.Counting{}), "no pod": m.ReadPods(snapshot.Counting{}, nil),
		} {
			if r.Node.Available != want {
				t.Errorf("%s, %q: %d bytes available, %d by the counters", name, lagging, r.Node.Available, want)
			}
			if r.PodsUsed != 1 {
				t.Errorf("%s: pods use %d bytes, want 1", name, r.PodsUsed)
			}
		}
	}
}

func TestPodsWithoutLimitHaveNothingAvailable(t *testing.T) {
	root := tree(t, map[string]string{
		"meminfo": meminfoFile, "cgroup.controllers": "", "memory.stat": "inactive_file 0\n",
		"kubepods/memory.max": "max\n", "kubepods/memory.current": "1\n",
	})
	m, err := NewMemory(Options{CgroupRoot: root, Meminfo: filepath.Join(root, "meminfo"), PodsCgroup: "kubepods"})
	if err != nil {
		t.Fatal(err)
	}
	if r := m.ReadMemory(snapshot.Counting{}); !errors.Is(r.Pods.Err, errUnlimited) || r.Node.Err != nil {
		t.Errorf("%+v", r)
	}
}

func TestNothingToRead(t *testing.T) {
	if _, err := NewMemory(Options{CgroupRoot: t.TempDir(), Meminfo: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("no error")
	}
}

func TestPodUID(t *testing.T) {
	for podsCgroup, names := range map[string]map[string]string{
		"/kubepods": {"pod0a-1b": "0a-1b", "pod": "", "burstable": "", "kubepods-pod0a_1b.slice": ""},
		"/kubepods.slice": {
			"kubepods-pod0a_1b.slice": "0a-1b", "kubepods-besteffort-pod0a_1b.slice": "0a-1b", "kubepods-pod.slice": "",
			"kubepods-besteffort.slice": "", "system.slice": "", "pod0a-1b": "", "other-pod0a_1b.slice": "",
			"kubepods-pod0a_1b": "",
		},
		"/a.slice/a-kubepods.slice": {
			"a-kubepods-burstable-pod0a_1b.slice": "0a-1b", "kubepods-burstable-pod0a_1b.slice": "",
		},
	} {
		for name, want := range names {
			if got, ok := namesBelow(podsCgroup).podUID(name); ok != (want != "") || (ok && got != want) {
				t.Errorf("below %s, %s: %q, %v", podsCgroup, name, got, ok)
			}
		}
	}
}

// BenchmarkReadMemory shows the cost of reading all pods, with the files of a node of 110 pods on a plain file system.
func BenchmarkReadMemory(b *testing.B) {
	root := b.TempDir()
	write := func(name, content string) {
		path := filepath.Join(root, name)
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		_ = os.WriteFile(path, []byte(content), 0o644)
	}
	write("meminfo", meminfoFile)
	write("cgroup.controllers", "")
	write("memory.stat", "inactive_file 0\n")
	for i := range 110 {
		dir := fmt.Sprintf("kubepods/besteffort/pod%d/", i)
		write(dir+"memory.current", "1000\n")
		write(dir+"memory.stat", "anon 1\ninactive_file 2\n")
		write(dir+"c/memory.stat", "anon 1\ninactive_file 2\n")
	}
	m, err := NewMemory(Options{CgroupRoot: root, Meminfo: filepath.Join(root, "meminfo"), PodsCgroup: "kubepods"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		m.ReadMemory(snapshot.Counting{})
	}
}
