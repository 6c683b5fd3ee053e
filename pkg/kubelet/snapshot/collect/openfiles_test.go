package collect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestD40LeavesAreReadBeforeParents: the kernel sums up the counters of a parent when a leaf is read, and so it is with
// the cgroup of a QoS class.
func TestD40LeavesAreReadBeforeParents(t *testing.T) {
	const usage, stat = "memory.usage_in_bytes", "memory.stat"
	root := tree(t, map[string]string{
		"meminfo": meminfoFile, "memory/" + usage: "614400\n", "memory/kubepods/" + usage: "300000\n",
		"memory/kubepods/memory.limit_in_bytes":           "500000\n",
		"memory/kubepods/" + stat:                         "total_inactive_file 100000\n",
		"memory/kubepods/besteffort/" + stat:              "total_inactive_file 400\n",
		"memory/kubepods/besteffort/pod12-34/" + usage:    "1000\n",
		"memory/kubepods/besteffort/pod12-34/" + stat:     "total_inactive_file 400\n",
		"memory/kubepods/besteffort/pod12-34/c1/" + stat:  "total_inactive_file 400\n",
		"memory/kubepods/besteffort/pod12-34/c2/" + stat:  "total_inactive_file 400\n",
		"memory/kubepods/besteffort/pod12-34/c1/" + usage: "1000\n",
	})
	m, err := NewMemory(Options{CgroupRoot: root, Meminfo: filepath.Join(root, "meminfo"), PodsCgroup: "kubepods"})
	if err != nil {
		t.Fatal(err)
	}
	pods := filepath.Join(root, "memory", "kubepods")
	pod := filepath.Join(pods, "besteffort", "pod12-34")
	order := accesses(t, []string{
		filepath.Join(pod, "c1", stat), filepath.Join(pod, "c2", stat), filepath.Join(pod, stat),
		filepath.Join(pods, "besteffort", stat), filepath.Join(pods, stat),
	})
	all := func() { m.ReadMemory(snapshot.Counting{}) }
	for _, test := range []struct {
		name string
		read func()
		want []int
	}{
		{"the first reading", all, []int{0, 1, 2, 3, 4}},
		{"a reading of files that are open", all, []int{0, 1, 2, 3, 4}},
		{"a reading of no pod", func() { m.ReadPods(snapshot.Counting{}, nil) }, []int{3, 4}},
	} {
		test.read()
		if got := order(); !slices.Equal(got, test.want) {
			t.Errorf("%s is in the order %v, want %v", test.name, got, test.want)
		}
	}
}

// accesses returns a function that returns in which order the files were read since it was last called.
func accesses(t *testing.T, files []string) (order func() []int) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	var watches []int
	for _, file := range files {
		watch, err := unix.InotifyAddWatch(fd, file, unix.IN_ACCESS)
		if err != nil {
			t.Fatal(err)
		}
		watches = append(watches, watch)
	}
	return func() (list []int) {
		buffer := make([]byte, 64<<10)
		n, err := unix.Read(fd, buffer)
		if err != nil {
			t.Fatal(err)
		}
		// Events of files have no name, so that each has the same size.
		for event := range slices.Chunk(buffer[:n], unix.SizeofInotifyEvent) {
			watch, mask := binary.NativeEndian.Uint32(event), binary.NativeEndian.Uint32(event[4:])
			if mask&unix.IN_ACCESS != 0 { // Watches end with their files, which is an event too.
				list = append(list, slices.Index(watches, int(watch)))
			}
		}
		return slices.Compact(list)
	}
}

// A container that was started since the last reading is read before its pod too, and one that has ended is not.
func TestContainersThatComeAndGoAreReadBeforeTheirPod(t *testing.T) {
	r := newLookRig(t, 1)
	pod := filepath.Join(r.root, "kubepods/besteffort/pod000")
	r.ReadMemory(snapshot.Counting{})
	r.write("kubepods/besteffort/pod000/new/memory.stat", "anon 600\n")
	order := accesses(t, []string{filepath.Join(pod, "new/memory.stat"), filepath.Join(pod, "memory.stat")})
	r.ReadMemory(snapshot.Counting{})
	if got := order(); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("the container and its pod were read in the order %v", got)
	}
	if err := os.RemoveAll(filepath.Join(pod, "new")); err != nil {
		t.Fatal(err)
	}
	if got := r.ReadMemory(snapshot.Counting{}); got.ByPod["000"] == nil {
		t.Error("the pod is not read any more")
	}
	if got := order(); !slices.Equal(got, []int{1}) {
		t.Errorf("read were %v, want only the pod", got)
	}
}

// The processes of a container are in cgroups below its own, which crun makes, and systemd or Docker in a container:
// they are read first, also if they are made later. One that does not count memory is left out.
func TestCgroupsBelowAContainerAreReadBeforeIt(t *testing.T) {
	r := newLookRig(t, 1)
	const container = "kubepods/besteffort/pod000/c"
	r.write(container+"/container/memory.stat", "anon 600\n")
	r.write(container+"/pids/cgroup.procs", "")
	file := func(dir string) string { return filepath.Join(r.root, container, dir, "memory.stat") }
	files := []string{file("container"), file(""), file("..")}
	order := accesses(t, files)
	for range 2 {
		r.ReadMemory(snapshot.Counting{})
		if got := order(); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("cgroup, container and pod were read in the order %v", got)
		}
	}
	r.write(container+"/container/deeper/memory.stat", "anon 600\n")
	order = accesses(t, append([]string{file("container/deeper")}, files...))
	r.ReadMemory(snapshot.Counting{})
	if got := order(); !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("two cgroups, container and pod were read in the order %v", got)
	}
	if stats := r.open.byPod[0].stats; len(stats) != 4 {
		t.Errorf("%d files are open", len(stats))
	}
}

// A container has many cgroups below its own. Only some of them are read, and the other container is.
func TestContainerWithManyCgroups(t *testing.T) {
	r := newLookRig(t, 1)
	const pod = "kubepods/besteffort/pod000"
	for i := range 80 {
		r.write(fmt.Sprintf("%s/c/unit%02d/memory.stat", pod, i), "anon 600\n")
	}
	r.write(pod+"/d/memory.stat", "anon 600\n")
	var files []string
	for _, dir := range []string{"c", "d", ""} {
		files = append(files, filepath.Join(r.root, pod, dir, "memory.stat"))
	}
	order := accesses(t, files)
	r.ReadMemory(snapshot.Counting{})
	if got := order(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("the containers and the pod were read in the order %v", got)
	}
	if n, most := len(r.open.byPod[0].stats), len(files)+nestedCount; n > most {
		t.Errorf("%d files are open, want %d at most", n, most)
	}
}

// Cgroups below a container that do not count memory are not read, and only some of them are examined. Systemd makes
// its cgroups first and enables the memory controller for them after that: then they are read.
func TestMemoryControllerIsEnabledBelowAContainer(t *testing.T) {
	r := newLookRig(t, 1)
	const container = "kubepods/besteffort/pod000/c"
	for i := range 2 * nestedExamined {
		r.write(fmt.Sprintf("%s/unit%02d/cgroup.procs", container, i), "")
	}
	files := []string{filepath.Join(r.root, container, "memory.stat"), filepath.Join(r.root, container, "../memory.stat")}
	order := accesses(t, files)
	r.ReadMemory(snapshot.Counting{})
	if got := order(); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("container and pod were read in the order %v", got)
	}
	p := &r.open.byPod[0]
	if len(p.without) == 0 || len(p.without) > nestedExamined {
		t.Fatalf("%d cgroups without the controller are known, want at most %d of %d", len(p.without), nestedExamined,
			2*nestedExamined)
	}
	enabled := p.without[0]
	if err := os.WriteFile(enabled, []byte("anon 600\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	order = accesses(t, append([]string{enabled}, files...))
	r.ReadMemory(snapshot.Counting{})
	if got := order(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("cgroup, container and pod were read in the order %v", got)
	}
}

// A container has made very many cgroups: not all entries of its directory are read.
func TestFoldersAreReadInPart(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("%03d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for most, want := range map[int]int{-1: 100, 200: 100, 50: 50} {
		if got, err := foldersIn(dir, most); err != nil || len(got) != want || !slices.IsSorted(got) {
			t.Errorf("%d folders for %d entries, want %d in order", len(got), most, want)
		}
	}
	if got, err := foldersIn(filepath.Join(dir, "none"), -1); got != nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v in a directory that does not exist", got)
	}
}

// A pod has a cgroup without memory.stat: the kernel removes the files of a cgroup before it. The pod is read all the
// same.
func TestPodWithACgroupThatIsBeingRemoved(t *testing.T) {
	r := newLookRig(t, 2)
	if err := os.MkdirAll(filepath.Join(r.root, "kubepods/besteffort/pod000/d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := r.ReadMemory(snapshot.Counting{}); got.ByPod["000"] == nil {
		t.Error("ReadMemory has not read the pod")
	}
	r.usages()
	if got := r.ReadPods(snapshot.Counting{}, []types.UID{"000"}); got.ByPod["000"] == nil {
		t.Error("ReadPods has not read the pod")
	}
	if _, err := r.ReadPod(snapshot.Counting{}, "000"); err != nil {
		t.Errorf("ReadPod: %v", err)
	}
}

// Page cache that is added while containers are read is part of the usage that it is subtracted from.
func TestUsageIsReadAfterContainers(t *testing.T) {
	r := newLookRig(t, 1)
	pod := filepath.Join(r.root, "kubepods/besteffort/pod000")
	order := accesses(t, []string{
		filepath.Join(pod, "c/memory.stat"), filepath.Join(pod, "memory.current"), filepath.Join(pod, "memory.stat"),
	})
	for range 2 {
		r.ReadMemory(snapshot.Counting{})
		if got := order(); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("the container, usage and memory.stat were read in the order %v", got)
		}
	}
}

// A container that was started since the last search is read before its pod when single pods are read, too.
func TestNewContainerIsReadWithASinglePod(t *testing.T) {
	r := newLookRig(t, 1)
	r.usages()
	r.ReadPods(snapshot.Counting{}, []types.UID{"000"})
	pod := filepath.Join(r.root, "kubepods/besteffort/pod000")
	for name, read := range map[string]func(){
		"readpods": func() { r.ReadPods(snapshot.Counting{}, []types.UID{"000"}) },
		"readpod":  func() { _, _ = r.ReadPod(snapshot.Counting{}, "000") },
	} {
		r.write("kubepods/besteffort/pod000/"+name+"/memory.stat", "anon 600\n")
		order := accesses(t, []string{filepath.Join(pod, name, "memory.stat"), filepath.Join(pod, "memory.stat")})
		read()
		if got := order(); !slices.Equal(got, []int{0, 1}) {
			t.Errorf("%s: the container and its pod were read in the order %v", name, got)
		}
	}
}

// A container was replaced, so that there are as many as before, and the file of the former one cannot be read.
func TestResidentOfAPodWithAReplacedContainer(t *testing.T) {
	r := newLookRig(t, 1)
	r.usages()
	if _, err := r.ReadPod(snapshot.Counting{}, "000"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(r.root, "kubepods/besteffort/pod000")
	p := &r.quick.open.byPod[0]
	p.stats[0].Close() // As when the kernel removes the cgroup: reading it fails, and so does opening it again.
	if err := os.Rename(filepath.Join(dir, "c"), filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	order := accesses(t, []string{filepath.Join(dir, "other/memory.stat"), filepath.Join(dir, "memory.stat")})
	if pod, err := r.ReadPod(snapshot.Counting{}, "000"); pod.Resident != 700 || err != nil {
		t.Errorf("%d bytes, %v, want 700", pod.Resident, err)
	}
	if got := order(); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("the container and its pod were read in the order %v", got)
	}
}

// The cgroup of a pod was removed and created again, with as many containers.
func TestPodWhoseCgroupWasCreatedAgain(t *testing.T) {
	r := newLookRig(t, 1)
	r.usages()
	if _, err := r.ReadPod(snapshot.Counting{}, "000"); err != nil {
		t.Fatal(err)
	}
	pod := filepath.Join(r.root, "kubepods/besteffort/pod000")
	if err := os.Rename(pod, filepath.Join(t.TempDir(), "removed")); err != nil {
		t.Fatal(err)
	}
	r.pod("kubepods/besteffort/pod000", 1000)
	r.write("kubepods/besteffort/pod000/memory.stat", "anon 123\ninactive_file 1\nactive_file 1\n")
	r.now = r.now.Add(scanEvery)
	r.usages()
	got, err := r.ReadPod(snapshot.Counting{}, "000")
	if err != nil || got.Anonymous.Amount != 123 {
		t.Errorf("%d bytes of anonymous memory, %v, want 123", got.Anonymous.Amount, err)
	}
}

// A cgroup that does not count memory is replaced by one that does: there are as many as before.
func TestCgroupWithoutMemoryIsReplaced(t *testing.T) {
	r := newLookRig(t, 1)
	const container = "kubepods/besteffort/pod000/c"
	r.write(container+"/a/cgroup.procs", "")
	r.ReadMemory(snapshot.Counting{})
	if err := os.RemoveAll(filepath.Join(r.root, container, "a")); err != nil {
		t.Fatal(err)
	}
	r.write(container+"/b/memory.stat", "anon 600\n")
	stats := []string{filepath.Join(r.root, container, "b/memory.stat"), filepath.Join(r.root, container, "memory.stat")}
	order := accesses(t, stats)
	for range 3 {
		r.now = r.now.Add(2 * scanEvery)
		r.ReadMemory(snapshot.Counting{})
	}
	if got := order(); !slices.Contains(got, 0) {
		t.Errorf("the new cgroup is not read in three readings: %v", got)
	}
}
