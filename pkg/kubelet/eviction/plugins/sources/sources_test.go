package sources

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recorded returns a file of testdata.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// tree is a directory with the cgroups of pods.
type tree struct {
	t    testing.TB
	root string
}

func newTree(t testing.TB) *tree { return &tree{t, t.TempDir()} }

// cgroups are those of the tree, below the mount points of these controllers.
func (c *tree) cgroups(unified bool, controllers ...string) Cgroups {
	mounts := map[string]string{}
	for _, controller := range controllers {
		mounts[controller] = filepath.Join(c.root, controller)
		if unified {
			mounts[controller] = c.root
		}
	}
	return Cgroups{Unified: unified, Mounts: mounts, Path: func(pod *v1.Pod) string { return "/kubepods/" + pod.Name }}
}

// write writes a file of a pod's cgroup in place, as the kernel changes one; of a new cgroup if it does not exist.
func (c *tree) write(pod, path string, data []byte) {
	c.t.Helper()
	path = c.path(pod, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// path returns the path of a file. The controller is before the colon; without one the hierarchy is unified.
func (c *tree) path(pod, path string) string {
	controller, name, v1 := strings.Cut(path, ":")
	if !v1 {
		controller, name = "", path
	}
	return filepath.Join(c.root, controller, "kubepods", pod, name)
}

func pods(names ...string) (list []*v1.Pod) {
	for _, name := range names {
		list = append(list, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
	}
	return list
}

func TestResident(t *testing.T) {
	for name, tc := range map[string]struct {
		unified bool
		file    string
		data    []byte
	}{
		"v1, recorded": {false, "memory:memory.stat", recorded(t, "host-6.18/v1-memory.stat")},
		"v2, composed": {true, "memory.stat", recorded(t, "composed/v2-memory.stat")},
	} {
		t.Run(name, func(t *testing.T) {
			files := newTree(t)
			files.write("a", tc.file, tc.data)
			files.write("broken", tc.file, []byte("anon many\ntotal_rss many\n"))
			got := NewResident(files.cgroups(tc.unified, "memory")).Bytes(pods("a", "broken", "gone"))
			if want := map[types.UID]int64{"a": 321515520}; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
	if got := NewResident(Cgroups{}).Bytes(pods("a")); len(got) != 0 {
		t.Errorf("without cgroups: %v", got)
	}
}

// open counts the open files below a directory.
func open(t *testing.T, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if path, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && strings.HasPrefix(path, dir) {
			n++
		}
	}
	return n
}

// TestFilesStayOpen: files are opened once, and closed when their pods are gone or the reader is closed.
func TestFilesStayOpen(t *testing.T) {
	files := newTree(t)
	for i, pod := range []string{"a", "b", "c"} {
		files.write(pod, "memory.stat", fmt.Appendf(nil, "anon %d\n", i))
	}
	r := NewResident(files.cgroups(true, "memory"))
	for _, tc := range []struct {
		pods []*v1.Pod
		open int
	}{{pods("a", "b", "c"), 3}, {pods("a", "b", "c"), 3}, {pods("a", "c"), 2}, {pods("b"), 1}, {nil, 0}, {pods("a"), 1}} {
		if got := r.Bytes(tc.pods); len(got) != len(tc.pods) || open(t, files.root) != tc.open {
			t.Errorf("%v of %d pods, %d open files, want %d", got, len(tc.pods), open(t, files.root), tc.open)
		}
	}
	files.write("a", "memory.stat", []byte("anon 7\n"))
	if got := r.Bytes(pods("a")); got["a"] != 7 {
		t.Errorf("after a change %v", got)
	}
	r.Close()
	if n := open(t, files.root); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
	if got := r.Bytes(pods("a")); got["a"] != 7 {
		t.Errorf("after Close %v", got)
	}
	r.Close()
}

// TestCgroupIsCreatedAgain: a file that cannot be read any more is opened again. A directory stands for a removed
// cgroup: reading it fails too.
func TestCgroupIsCreatedAgain(t *testing.T) {
	files := newTree(t)
	f := &file{path: files.path("a", "memory.stat")}
	var buffer []byte
	if _, err := f.read(&buffer); !os.IsNotExist(err) {
		t.Fatal(err)
	}
	files.write("a", "memory.stat", []byte("anon 1\n"))
	var err error
	if f.file, err = os.Open(files.root); err != nil {
		t.Fatal(err)
	}
	if data, err := f.read(&buffer); err != nil || string(data) != "anon 1\n" {
		t.Errorf("%q, %v", data, err)
	}
	f.close()
}

// TestLongFiles: the buffer grows up to a limit.
func TestLongFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, length := range []int{0, 1, 4095, 4096, 4097, 1 << 20, maxFile - 1} {
		if err := os.WriteFile(path, bytes.Repeat([]byte{'\n'}, length), 0o644); err != nil {
			t.Fatal(err)
		}
		f := NewFile(path)
		if err := f.Read(func(data []byte) error {
			if len(data) != length {
				t.Errorf("%d of %d bytes", len(data), length)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		f.Close()
	}
	if err := os.Truncate(path, maxFile+1); err != nil {
		t.Fatal(err)
	}
	if err := NewFile(path).Read(nil); err == nil {
		t.Error("a file without end is read")
	}
}

// TestCutFiles: of a file that ends within a line, that line does not count: its number may be cut.
func TestCutFiles(t *testing.T) {
	files := newTree(t)
	for pod, text := range map[string]string{"whole": "file 9\nanon 123\n", "cut": "file 9\nanon 12", "empty": ""} {
		files.write(pod, "memory.stat", []byte(text))
		files.write(pod, "memory.numa_stat", []byte(strings.ReplaceAll(text, " ", " N0=")))
	}
	cgroups := files.cgroups(true, "memory")
	if got := NewResident(cgroups).Bytes(pods("whole", "cut", "empty")); len(got) != 1 || got["whole"] != 123 {
		t.Errorf("resident sets %v", got)
	}
	if got := NewNUMAMemory(cgroups).ByNode(pods("whole", "cut", "empty")); len(got) != 1 || got["whole"][0] != 132 {
		t.Errorf("memory by NUMA node %v", got)
	}
	files.write("usage", "memory.current", []byte("12"))
	if got := NewPodMemory(cgroups).Usage(pods("usage")); len(got) != 0 {
		t.Errorf("usage %v", got)
	}
	whole := recorded(t, "composed/zoneinfo-5.15-2-nodes")
	cut := bytes.LastIndex(whole, []byte("  managed  8388608\n")) + len("  managed  838")
	path := filepath.Join(t.TempDir(), "zoneinfo")
	for length, want := range map[int]int{len(whole): 2, cut: 1, cut + len("8608\n"): 2, 10: 0} {
		if err := os.WriteFile(path, whole[:length], 0o644); err != nil {
			t.Fatal(err)
		}
		z := NewZoneinfo(path)
		if got, err := z.Zones(); err != nil || len(got) != want {
			t.Errorf("the first %d bytes: %+v, %v", length, got, err)
		}
		z.Close()
	}
}

func FuzzField(f *testing.F) {
	f.Add(recorded(f, "host-6.18/v1-memory.stat"), "total_rss")
	f.Add(recorded(f, "composed/v2-memory.stat"), "anon")
	f.Add([]byte("anon -1\nanon 5"), "anon")
	f.Fuzz(func(t *testing.T, data []byte, key string) {
		n, ok := field(data, key)
		if !ok {
			if n != 0 {
				t.Errorf("%d of nothing", n)
			}
			return
		}
		found := false
		for line := range strings.SplitSeq(string(data), "\n") {
			rest, is := strings.CutPrefix(line, key+" ")
			value, err := strconv.ParseUint(strings.TrimLeft(rest, " "), 10, 64)
			found = found || (is && err == nil && value == uint64(n))
		}
		if !found || n < 0 || n > most {
			t.Errorf("%d is in no line of %q", n, data)
		}
	})
}
