package collect

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// lookRig is a node on cgroup v2 with a clock that the test sets.
type lookRig struct {
	testing.TB
	root string
	now  time.Time
	*Memory
}

func newLookRig(t testing.TB, pods int) *lookRig {
	r := &lookRig{TB: t, root: t.TempDir(), now: time.Unix(1e9, 0)}
	r.write("meminfo", meminfoFile)
	r.write("cgroup.controllers", "")
	r.write("memory.stat", "inactive_file 0\n")
	r.write("kubepods/memory.current", "5000\n")
	r.write("kubepods/memory.max", "9000\n")
	r.write("kubepods/memory.stat", "inactive_file 0\n")
	for i := range pods {
		r.pod(fmt.Sprintf("kubepods/besteffort/pod%03d", i), 1000+i)
	}
	m, err := NewMemory(Options{CgroupRoot: r.root, Meminfo: filepath.Join(r.root, "meminfo"), PodsCgroup: "kubepods",
		Now: func() time.Time { return r.now }})
	if err != nil {
		t.Fatal(err)
	}
	r.Memory = m
	return r
}

func (r *lookRig) write(name, content string) {
	path := filepath.Join(r.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		r.Fatal(err)
	}
}

func (r *lookRig) pod(dir string, usage int) {
	r.write(dir+"/memory.current", fmt.Sprintln(usage))
	r.write(dir+"/memory.stat", "anon 600\ninactive_file 100\nactive_file 200\n")
	r.write(dir+"/c/memory.stat", "anon 600\ninactive_file 100\nactive_file 200\n")
}

func (r *lookRig) usages() string {
	var list []string
	for _, u := range r.PodUsages(nil) {
		list = append(list, fmt.Sprintf("%s=%d", u.UID, u.Usage))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func (r *lookRig) expectUsages(want string) {
	r.Helper()
	if got := r.usages(); got != want {
		r.Errorf("usages %q, want %q", got, want)
	}
}

func TestPodUsages(t *testing.T) {
	r := newLookRig(t, 2)
	r.pod("kubepods/podguaranteed", 70)
	r.expectUsages("000=1000 001=1001 guaranteed=70")
	r.write("kubepods/podguaranteed/memory.current", "80\n")
	r.write("kubepods/besteffort/pod001/memory.current", "not a number\n")
	r.expectUsages("000=1000 guaranteed=80")
	r.write("kubepods/besteffort/pod001/memory.current", "max\n")
	// A pod that is started or removed is found at once, in a QoS class that is new too.
	r.pod("kubepods/burstable/podnew", 7)
	r.expectUsages("000=1000 guaranteed=80 new=7")
	r.pod("kubepods/burstable/podnewer", 8)
	r.write("kubepods/besteffort/pod001/memory.current", "1002\n")
	r.expectUsages("000=1000 001=1002 guaranteed=80 new=7 newer=8")
	if err := os.RemoveAll(filepath.Join(r.root, "kubepods/burstable/podnewer")); err != nil {
		t.Fatal(err)
	}
	r.expectUsages("000=1000 001=1002 guaranteed=80 new=7")
	// One that is started when another one is removed, whose open counter cannot be read then, is found at once too.
	r.write("kubepods/burstable/podnew/memory.current", "")
	if err := os.RemoveAll(filepath.Join(r.root, "kubepods/burstable/podnew")); err != nil {
		t.Fatal(err)
	}
	r.pod("kubepods/burstable/podother", 9)
	r.expectUsages("000=1000 001=1002 guaranteed=80 other=9")
	// If it can be read, which the kernel does not allow, the other one is found some seconds later.
	if err := os.RemoveAll(filepath.Join(r.root, "kubepods/burstable/podother")); err != nil {
		t.Fatal(err)
	}
	r.pod("kubepods/burstable/podlast", 10)
	r.now = r.now.Add(scanEvery)
	r.expectUsages("000=1000 001=1002 guaranteed=80 last=10")
	// A clock that was set back does not stop the search.
	if err := os.RemoveAll(filepath.Join(r.root, "kubepods/besteffort/pod000")); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(-time.Hour)
	r.expectUsages("001=1002 guaranteed=80 last=10")
}

func TestResidentHasNoPageCache(t *testing.T) {
	r := newLookRig(t, 1)
	if _, err := r.ReadPod(snapshot.Counting{}, "000"); err == nil {
		t.Error("the memory of a pod that was not found")
	}
	r.usages()
	if pod, err := r.ReadPod(snapshot.Counting{}, "000"); pod.Resident != 700 || err != nil {
		t.Errorf("%d bytes, %v, want 700", pod.Resident, err)
	}
	r.write("kubepods/besteffort/pod000/memory.current", "5000\n")
	r.write("kubepods/besteffort/pod000/memory.stat", "inactive_file 4000\nactive_file 200\n")
	if pod, err := r.ReadPod(snapshot.Counting{}, "000"); pod.Resident != 800 || err != nil {
		t.Errorf("%d bytes, %v, want 800", pod.Resident, err)
	}
	r.write("kubepods/besteffort/pod000/memory.stat", "inactive_file 4000\n")
	if pod, err := r.ReadPod(snapshot.Counting{}, "000"); err == nil {
		t.Errorf("%d bytes, without the active file pages", pod.Resident)
	}
}

func TestReadPodsReadsOnlyThose(t *testing.T) {
	r := newLookRig(t, 3)
	r.usages()
	all, some := r.ReadMemory(snapshot.Counting{}), r.ReadPods(snapshot.Counting{}, []types.UID{"001", "none"})
	if len(some.ByPod) != 1 || some.ByPod["001"] == nil || *some.ByPod["001"] != *all.ByPod["001"] {
		t.Errorf("pods %v, want 001 of %v", some.ByPod, all.ByPod)
	}
	if some.Node != all.Node || some.Pods != all.Pods || !some.Pods.Known() {
		t.Errorf("node %+v and pods %+v, want %+v and %+v", some.Node, some.Pods, all.Node, all.Pods)
	}
}

// TestLooksDoNotWaitForReadings: a reading of all pods takes long on a real node.
func TestLooksDoNotWaitForReadings(t *testing.T) {
	r := newLookRig(t, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expectUsages("000=1000")
	if _, err := r.Counters(snapshot.Counting{}); err != nil {
		t.Error(err)
	}
}

// TestLooksAllocateNothing: looks are made hundreds of times a second.
func TestLooksAllocateNothing(t *testing.T) {
	r := newLookRig(t, 110)
	r.write("kubepods/besteffort/pod050/memory.swap.current", "4096\n")
	how := snapshot.Counting{Swap: true}
	usages := r.PodUsages(nil)
	if _, err := r.ReadPod(how, "050"); err != nil {
		t.Fatal(err)
	}
	allocations := testing.AllocsPerRun(20, func() {
		_, _ = r.Counters(snapshot.Counting{})
		usages = r.PodUsages(usages[:0])
		_, _ = r.ReadPod(how, "050")
	})
	if allocations > 0 || len(usages) != 110 {
		t.Errorf("%.0f allocations for %d pods", allocations, len(usages))
	}
}

// BenchmarkLook shows the cost of a look at a node of 110 pods, on a plain file system.
func BenchmarkLook(b *testing.B) {
	r := newLookRig(b, 110)
	var usages []snapshot.PodUsage
	b.ReportAllocs()
	for b.Loop() {
		_, _ = r.Counters(snapshot.Counting{})
		usages = r.PodUsages(usages[:0])
	}
}
