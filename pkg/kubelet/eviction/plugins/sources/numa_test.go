package sources

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/numamemory"
)

const page = 4096

// TestZoneinfo parses files of 1, 2 and 4 NUMA nodes and several kernels. Values are in pages here.
func TestZoneinfo(t *testing.T) {
	first := numamemory.Zone{
		Total: 3840 + 772915 + 7340032, Free: 3840 + 100000 + 900000, Min: 13 + 2735 + 12000, Low: 16 + 3507 + 15000,
		InactiveFile: 752020,
	}
	other := func(n int64) numamemory.Zone {
		return numamemory.Zone{Node: int(n), Total: 8388608, Free: 5000 * n, Min: 14000, Low: 17000 + n,
			InactiveFile: 1000 * n}
	}
	for name, want := range map[string][]numamemory.Zone{
		"composed/zoneinfo-4.19-4-nodes": {first, other(1), other(2), other(3)},
		"composed/zoneinfo-5.15-2-nodes": {first, other(1)},
		"composed/zoneinfo-6.1-4-nodes":  {first, other(1), other(2), other(3)},
		"composed/zoneinfo-6.12-2-nodes": {first, other(1)},
	} {
		for i := range want {
			z := &want[i]
			z.Total, z.Free, z.Min, z.Low, z.InactiveFile = z.Total*page, z.Free*page, z.Min*page, z.Low*page,
				z.InactiveFile*page
		}
		got, err := parseZoneinfo(recorded(t, name), page)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	// The recorded machine has the zones DMA, DMA32 and Normal, and two without memory.
	got, err := parseZoneinfo(recorded(t, "host-6.18/zoneinfo"), page)
	want := []numamemory.Zone{{
		Total: 19556151296, Free: 7979425792, Min: 69201920, Low: 88748032, InactiveFile: 2307710976,
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	now, err := NewZoneinfo("/proc/zoneinfo").Zones()
	if err != nil || len(now) == 0 || now[0].Min <= 0 {
		t.Errorf("of this machine: %+v, %v", now, err)
	}
	if _, err := NewZoneinfo(filepath.Join(t.TempDir(), "zoneinfo")).Zones(); !os.IsNotExist(err) {
		t.Errorf("without a file: %v", err)
	}
}

// TestBrokenZoneinfo: a NUMA node with a broken line is unknown, which the error says, and the others are known. One
// without memory is left out.
func TestBrokenZoneinfo(t *testing.T) {
	whole := string(recorded(t, "composed/zoneinfo-5.15-2-nodes"))
	last := strings.LastIndex(whole, "Node 1, zone   Normal")
	for name, tc := range map[string]struct {
		old, with string
		want      []int
		err       bool
	}{
		"nothing broken":    {"", "", []int{0, 1}, false},
		"free is no number": {"pages free     5000", "pages free     5k", []int{0}, true},
		"free is missing":   {"  pages free     5000\n", "", []int{0}, true},
		"free is negative":  {"pages free     5000", "pages free     -5000", []int{0}, true},
		"free is too great": {"pages free     5000", "pages free     99999999999999999", []int{0}, true},
		"free has a unit":   {"pages free     5000", "pages free     5000 kB", []int{0}, true},
		"min is missing":    {"        min      14000\n", "", []int{0}, true},
		"min is twice": {"        min      14000\n", "        min      14000\n        min      1\n", []int{0},
			true},
		"low is cut":               {"low      17001\n", "low\n", []int{0}, true},
		"low is below min":         {"low      17001\n", "low      13999\n", []int{0}, true},
		"no inactive file pages":   {"      nr_inactive_file 1000\n", "", []int{0}, true},
		"inactive pages are twice": {"nr_inactive_file 1000\n", "nr_inactive_file 1\n nr_inactive_file 1\n", []int{0}, true},
		"managed is missing":       {"        managed  8388608\n", "", []int{0}, true},
		"no managed pages":         {"managed  8388608\n", "managed  0\n", []int{0}, false},
		"header without number":    {"Node 1, zone   Normal", "Node x, zone   Normal", nil, true},
		"header without comma":     {"Node 1, zone   Normal", "Node 1 zone   Normal", nil, true},
		"header is cut":            {"Node 1, zone   Normal", "Node 1,", nil, true},
		"header with a word more":  {"Node 1, zone   Normal", "Node 1, zone   Normal x", nil, true},
		"number is too great":      {"Node 1, zone   Normal", "Node 1024, zone   Normal", nil, true},
		"other lines are broken":   {"        boost    0", "        boost", []int{0, 1}, false},
		"watermark in pagesets":    {"              count: 62", "        min      9", []int{0, 1}, false},
	} {
		text := whole[:last] + strings.Replace(whole[last:], tc.old, tc.with, 1)
		if name != "nothing broken" && text == whole {
			t.Fatalf("%s: nothing is replaced", name)
		}
		zones, err := parseZoneinfo([]byte(text), page)
		var got []int
		for _, z := range zones {
			got = append(got, z.Node)
		}
		if !slices.Equal(got, tc.want) || (err != nil) != tc.err {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func FuzzZoneinfo(f *testing.F) {
	for _, name := range []string{"host-6.18/zoneinfo", "composed/zoneinfo-4.19-4-nodes",
		"composed/zoneinfo-6.12-2-nodes"} {
		f.Add(recorded(f, name))
	}
	addRecorded(f, "zoneinfo")
	f.Fuzz(func(t *testing.T, data []byte) {
		zones, err := parseZoneinfo(data, page)
		if err != nil && !errors.Is(err, errUnexpected) {
			t.Error(err)
		}
		for i, z := range zones {
			if z.Total <= 0 || z.Free < 0 || z.Min < 0 || z.Low < z.Min || z.InactiveFile < 0 || z.Node >= maxNUMANodes {
				t.Errorf("%+v", z)
			}
			if i > 0 && zones[i-1].Node >= z.Node {
				t.Errorf("NUMA node %d after %d", z.Node, zones[i-1].Node)
			}
			if i == 0 && !bytes.Contains(data, []byte("nr_inactive_file ")) {
				t.Errorf("%+v without its inactive file pages", z)
			}
		}
	})
}

func TestNUMAMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		unified bool
		path    string
		file    string
		want    map[int]int64
	}{
		"v1, recorded": {false, "memory:memory.numa_stat", "host-6.18/v1-memory.numa_stat", map[int]int64{0: 425016}},
		"v1, composed": {false, "memory:memory.numa_stat", "composed/v1-memory.numa_stat-4-nodes",
			map[int]int64{0: 210, 1: 105, 2: 110, 3: 0}},
		"v2, composed, 1 node": {true, "memory.numa_stat", "composed/v2-memory.numa_stat-1-node", map[int]int64{0: 425016}},
		"v2, composed": {true, "memory.numa_stat", "composed/v2-memory.numa_stat-4-nodes",
			map[int]int64{0: 210, 1: 105, 2: 110, 3: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			files := newTree(t)
			files.write("a", tc.path, recorded(t, tc.file))
			files.write("broken", tc.path, []byte("anon N0=x\nhierarchical_total=x\n"))
			got, err := NewNUMAMemory(files.cgroups(tc.unified, "memory")).ByNode(pods("a", "broken", "gone"))
			want := map[int]int64{}
			for node, pages := range tc.want {
				want[node] = pages * int64(os.Getpagesize())
			}
			if len(got) != 1 || !maps.Equal(got["a"], want) || !names(err, "/broken/memory.numa_stat: ", "1 of 3 pods") {
				t.Errorf("%v, %v, want %v", got, err, want)
			}
		})
	}
}

// TestBrokenNUMAStat: of a file with a broken, missing or repeated line nothing is known.
func TestBrokenNUMAStat(t *testing.T) {
	files := newTree(t)
	for i, text := range []string{
		"", "anon N0=1", "file N0=1", "anon N0=1\nfile N0=1\nfile N0=1", "anon N0=1\nfile N0", "anon N0=1\nfile N0=",
		"anon N0=1\nfile N0=-1", "anon N0=1\nfile M0=1", "anon N0=1\nfile N=1", "anon N0=1\nfile N1024=1", "anon N0=1\nfile ",
		"anon N0=1\nfile N0=1 x", "anon N0=1\nfile x N0=1", "anon N0=1\nfile N0=999999999999999999999",
		"anon N0=1 N0=2\nfile N0=1", "anon 3 N0=1\nfile N0=1",
	} {
		files.write(fmt.Sprint(i), "memory.numa_stat", []byte(text+"\n"))
		got, err := NewNUMAMemory(files.cgroups(true, "memory")).ByNode(pods(fmt.Sprint(i)))
		if len(got) > 0 || !names(err, "/memory.numa_stat: ") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func FuzzNUMAStat(f *testing.F) {
	f.Add(recorded(f, "host-6.18/v1-memory.numa_stat"))
	f.Add(recorded(f, "composed/v2-memory.numa_stat-4-nodes"))
	addRecorded(f, "v2-memory.numa_stat")
	v1, v2 := NewNUMAMemory(Cgroups{}), NewNUMAMemory(Cgroups{Unified: true})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, n := range []*NUMAMemory{v1, v2} {
			memory, ok := n.parse(data)
			if ok == (len(memory) == 0) {
				t.Errorf("%v, %v", memory, ok)
			}
			for node, amount := range memory {
				if node < 0 || node >= maxNUMANodes || amount < 0 {
					t.Errorf("%v", memory)
				}
			}
		}
	})
}

func TestPodMemory(t *testing.T) {
	files := newTree(t)
	files.write("a", "memory.current", []byte("4096\n"))
	files.write("a", "memory.pressure", recorded(t, "host-6.18/v2-memory.pressure"))
	files.write("a", "memory:memory.usage_in_bytes", []byte("8192\n"))
	files.write("b", "memory.current", []byte("max\n"))
	files.write("b", "memory.pressure", []byte("some avg10=7.25 avg60=0.00 avg300=0.00 total=0\n"))
	v2 := NewPodMemory(files.cgroups(true, "memory"))
	usage, err := v2.Usage(pods("a", "b"))
	stalls, stallsErr := v2.Stalls(pods("a", "b"))
	if !names(err, "/b/memory.current: ") || stallsErr != nil ||
		!maps.Equal(usage, map[types.UID]int64{"a": 4096}) || !maps.Equal(stalls, map[types.UID]float64{"a": 0,
		"b": 7.25}) {
		t.Errorf("v2: %v, %v; %v, %v", usage, err, stalls, stallsErr)
	}
	v1 := NewPodMemory(files.cgroups(false, "memory"))
	if usage, err := v1.Usage(pods("a", "b")); err != nil || !maps.Equal(usage, map[types.UID]int64{"a": 8192}) {
		t.Errorf("v1: %v, %v", usage, err)
	}
	if stalls, err := v1.Stalls(pods("a")); stalls != nil || err != nil {
		t.Errorf("v1: %v, %v", stalls, err)
	}
	v1.Close()
	v2.Close()
	if n := open(t, files.root); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// TestNodeMemory: what is in the recorded files, and nothing of what is missing or broken.
func TestNodeMemory(t *testing.T) {
	proc := t.TempDir()
	write := func(name string, data []byte) {
		t.Helper()
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := NewNodeMemory(proc)
	all := []string{"/meminfo", "/vmstat", "/sys/vm/watermark_scale_factor", "/pressure/memory"}
	if n, err := m.Node(); n.Unknown() == nil || !names(err, all...) {
		t.Errorf("%+v, %v without files", n, err)
	}
	write("meminfo", recorded(t, "host-6.18/meminfo"))
	write("vmstat", recorded(t, "host-6.18/vmstat"))
	write("sys/vm/watermark_scale_factor", []byte("10\n"))
	write("pressure/memory", []byte("some avg10=12.34 avg60=2.68 avg300=1.30 total=8562333\nfull avg10=1.00 avg60=0.00\n"))
	n, err := m.Node()
	if err != nil || *n.Total < 18<<30 || *n.Free <= 0 || *n.Free >= *n.Total || *n.Stolen != 0 || *n.ScaleFactor != 10 ||
		*n.Stall != 12.34 {
		t.Errorf("%+v", n)
	}
	for _, name := range []string{"meminfo", "vmstat", "sys/vm/watermark_scale_factor", "pressure/memory"} {
		write(name, []byte("MemFree: 12 MB\nMemTotal:\npgsteal_kswapd_dma 5\nsome avg10=1 avg60=2\n"))
	}
	n, err = m.Node()
	if !names(err, all...) || n.Free != nil || n.Total != nil || n.Stolen != nil || n.ScaleFactor != nil ||
		n.Stall != nil {
		t.Errorf("%+v of broken files", n)
	}
	if n := open(t, proc); n != 4 {
		t.Errorf("%d open files", n)
	}
	m.Close()
	if n := open(t, proc); n != 0 {
		t.Errorf("%d open files", n)
	}
}

func FuzzStalls(f *testing.F) {
	f.Add(recorded(f, "host-6.18/pressure-memory"))
	addRecorded(f, "pressure-memory")
	addRecorded(f, "v2-memory.pressure")
	f.Add([]byte("some avg10=99.99 avg60=0.00\n"))
	f.Add([]byte("some avg10=100.01 avg60=0.00\n"))
	f.Add([]byte("some avg10=184467440737095578.00 avg60=0.00\n"))
	f.Add([]byte("some avg10=1.005 \nsome avg10=1.00 "))
	f.Fuzz(func(t *testing.T, data []byte) {
		stall, ok := someAvg10(data)
		if !ok && stall != 0 || stall < 0 || stall > 100 {
			t.Errorf("%v, %v", stall, ok)
		}
		// The number is in the file as it is, but for zeros before it.
		if ok && !bytes.Contains(data, fmt.Appendf(nil, "%.2f ", stall)) {
			t.Errorf("%v of %q", stall, data)
		}
	})
}

func FuzzMeminfo(f *testing.F) {
	f.Add(recorded(f, "host-6.18/meminfo"), "MemFree")
	addRecorded(f, "meminfo", "MemFree")
	f.Fuzz(func(t *testing.T, data []byte, key string) {
		n, ok := kilobytes(data, key)
		if !ok && n != 0 || n < 0 || n%1024 != 0 {
			t.Errorf("%d, %v", n, ok)
		}
	})
}
