package collect

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// emptyNode is what there is on a node with cgroup v2 before it has pods.
func emptyNode() map[string]string {
	return map[string]string{"meminfo": meminfoFile, "cgroup.controllers": "", "memory.stat": "inactive_file 0\n"}
}

// TestPodsAreFoundBelowAnyCgroupRoot: the names are composed by stock's container manager, for both drivers.
func TestPodsAreFoundBelowAnyCgroupRoot(t *testing.T) {
	const guaranteed, burstable, bestEffort = "0a-1b", "pod-2c", "besteffort-pod3d"
	for _, root := range []string{"/", "/plimsoll", "/my-node/agents", "/kubepods", "/a.slice"} {
		parent := cm.NewCgroupName(cm.ParseCgroupfsToCgroupName(root), "kubepods")
		for driver, literal := range map[string]func(cm.CgroupName) string{
			"cgroupfs": cm.CgroupName.ToCgroupfs, "systemd": cm.CgroupName.ToSystemd,
		} {
			t.Run(driver+path.Join("/", root), func(t *testing.T) {
				files := emptyNode()
				classesOf := map[string][]string{guaranteed: nil, burstable: {"burstable"}, bestEffort: {"besteffort"}}
				for uid, classes := range classesOf {
					dir := literal(cm.NewCgroupName(parent, append(classes, "pod"+uid)...))
					files[path.Join(dir, "memory.current")] = "1000\n"
					files[path.Join(dir, "memory.stat")] = "anon 50\ninactive_file 100\n"
				}
				dir := tree(t, files)
				meminfo := filepath.Join(dir, "meminfo")
				m, err := NewMemory(Options{CgroupRoot: dir, Meminfo: meminfo, PodsCgroup: literal(parent)})
				if err != nil {
					t.Fatal(err)
				}
				var found []string
				for uid := range m.ReadMemory(snapshot.Counting{}).ByPod {
					found = append(found, string(uid))
				}
				slices.Sort(found)
				if want := []string{guaranteed, bestEffort, burstable}; !slices.Equal(found, want) {
					t.Errorf("found pods %v, want %v", found, want)
				}
			})
		}
	}
}

// TestCgroupsThatAreNotRecognizedAreReported: once for each change, with their number as a metric. A foreign cgroup
// beside those of pods is none of them, wherever it lies.
func TestCgroupsThatAreNotRecognizedAreReported(t *testing.T) {
	files := emptyNode()
	files["kubepods/foreign/memory.current"] = "1\n"
	dir := tree(t, files)
	var lines []string
	logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	meminfo := filepath.Join(dir, "meminfo")
	m, err := NewMemory(Options{CgroupRoot: dir, Meminfo: meminfo, PodsCgroup: "/kubepods", Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	step := func(what string, count float64, logged int) {
		t.Helper()
		lines = nil
		for range 3 {
			m.ReadMemory(snapshot.Counting{})
		}
		if got, err := testutil.GetGaugeMetricValue(podCgroupsUnrecognized); err != nil || got != count {
			t.Errorf("%s: the metric is %v, %v; want %v", what, got, err, count)
		}
		if len(lines) != logged {
			t.Errorf("%s: %d lines in three readings, want %d: %q", what, len(lines), logged, lines)
		}
	}
	add := func(name string) {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	step("a foreign cgroup alone", 1, 1)
	add("kubepods/kubepods-pod1.slice")
	step("a pod's cgroup of the other driver", 2, 1)
	add("kubepods/burstable")
	step("a QoS class beside them", 0, 1)
	add("kubepods/burstable/kubepods-pod2.slice")
	step("only that in the QoS class", 1, 1)
	add("kubepods/burstable/pod3")
	step("a pod beside it", 0, 1)
	step("no change", 0, 0)
	add("kubepods/besteffort/foreign")
	step("a foreign cgroup alone in another QoS class", 0, 0)
}
