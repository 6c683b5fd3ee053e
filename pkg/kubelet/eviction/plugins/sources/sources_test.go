package sources

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
			got, err := NewResident(files.cgroups(tc.unified, "memory")).Bytes(pods("a", "broken", "gone"))
			want := map[types.UID]int64{"a": 321515520}
			if !names(err, "/broken/memory.stat: ", "1 of 3 pods") || !maps.Equal(got, want) {
				t.Errorf("%v, %v, want %v", got, err, want)
			}
		})
	}
	if got, err := NewResident(Cgroups{}).Bytes(pods("a")); len(got) != 0 || !names(err, "memory.stat") {
		t.Errorf("without cgroups: %v, %v", got, err)
	}
}

// names reports whether there is an error that names all of these.
func names(err error, texts ...string) bool {
	return err != nil && !slices.ContainsFunc(texts, func(text string) bool {
		return !strings.Contains(err.Error(), text)
	})
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
		if got, err := r.Bytes(tc.pods); err != nil || len(got) != len(tc.pods) || open(t, files.root) != tc.open {
			t.Errorf("%v of %d pods, %d open files, want %d", got, len(tc.pods), open(t, files.root), tc.open)
		}
	}
	files.write("a", "memory.stat", []byte("anon 7\n"))
	if got, err := r.Bytes(pods("a")); err != nil || got["a"] != 7 {
		t.Errorf("after a change %v", got)
	}
	r.Close()
	if n := open(t, files.root); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
	if got, err := r.Bytes(pods("a")); err != nil || got["a"] != 7 {
		t.Errorf("after Close %v", got)
	}
	r.Close()
}

// TestErrorsOfPodFiles: the error names the first file and how many pods are like it, and is no longer with more pods.
// A pod without a cgroup counts only if no pod has one.
func TestErrorsOfPodFiles(t *testing.T) {
	files := newTree(t)
	r := NewResident(files.cgroups(true, "memory"))
	defer r.Close()
	var absent []string
	for i := range 110 {
		absent = append(absent, fmt.Sprintf("absent-%03d", i))
	}
	if got, err := r.Bytes(nil); len(got) != 0 || err != nil {
		t.Errorf("no pods: %v, %v", got, err)
	}
	_, err := r.Bytes(pods(absent...))
	if !names(err, "/absent-000/memory.stat", "no such file", "all 110 pods") || len(err.Error()) > 512 {
		t.Errorf("no pod has a cgroup: %v", err)
	}
	files.write("runs", "memory.stat", []byte("anon 1\n"))
	if got, err := r.Bytes(pods(append(absent, "runs")...)); len(got) != 1 || err != nil {
		t.Errorf("one pod has a cgroup: %v, %v", got, err)
	}
	// A folder stands for a file that can be opened and not read.
	files.write("folder/memory.stat", "file", nil)
	files.write("text", "memory.stat", []byte("anon many\n"))
	got, err := r.Bytes(pods(append(absent, "runs", "folder", "text")...))
	if len(got) != 1 || !names(err, "/folder/memory.stat", "is a directory", "2 of 113 pods") || len(err.Error()) > 512 {
		t.Errorf("one pod can be read: %v, %v", got, err)
	}
	got, err = r.Bytes(pods("text"))
	if len(got) != 0 || !names(err, "/text/memory.stat: ", "anon", "1 of 1 pods") || !errors.Is(err, errUnexpected) {
		t.Errorf("a file without the field: %v, %v", got, err)
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
	got, err := NewResident(cgroups).Bytes(pods("whole", "cut", "empty"))
	if !names(err, "/cut/memory.stat: ", "2 of 3 pods") || len(got) != 1 || got["whole"] != 123 {
		t.Errorf("resident sets %v, %v", got, err)
	}
	byNode, err := NewNUMAMemory(cgroups).ByNode(pods("whole", "cut", "empty"))
	if err == nil || len(byNode) != 1 || byNode["whole"][0] != 132 {
		t.Errorf("memory by NUMA node %v, %v", byNode, err)
	}
	files.write("usage", "memory.current", []byte("12"))
	if got, err := NewPodMemory(cgroups).Usage(pods("usage")); err == nil || len(got) != 0 {
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
		if got, err := z.Zones(); (err == nil) != (want != 1) || len(got) != want {
			t.Errorf("the first %d bytes: %+v, %v", length, got, err)
		}
		z.Close()
	}
}

func FuzzField(f *testing.F) {
	f.Add(recorded(f, "host-6.18/v1-memory.stat"), "total_rss")
	f.Add(recorded(f, "composed/v2-memory.stat"), "anon")
	addRecorded(f, "v2-memory.stat", "anon")
	addRecorded(f, "v2-cpu.stat", "nr_throttled")
	addRecorded(f, "vmstat", "pgsteal_kswapd")
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
