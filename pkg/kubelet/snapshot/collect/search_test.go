package collect

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func (r *lookRig) remove(dir string) {
	r.Helper()
	if err := os.RemoveAll(filepath.Join(r.root, dir)); err != nil {
		r.Fatal(err)
	}
}

// replace makes a cgroup anew, with another inode, as the kernel does.
func (r *lookRig) replace(dir string) {
	r.Helper()
	if err := os.Rename(filepath.Join(r.root, dir), filepath.Join(r.TempDir(), "removed")); err != nil {
		r.Fatal(err)
	}
}

// TestReplacedPodIsFound: a pod that is started when another one is removed leaves the number of cgroups as it was. The
// removed one is seen by its counter, which cannot be read any more; empty files stand for that.
func TestReplacedPodIsFound(t *testing.T) {
	r := newLookRig(t, 2)
	r.expectUsages("000=1000 001=1001")
	// The kernel removes the files before the cgroup: the search that this causes finds the cgroup.
	r.write("kubepods/besteffort/pod001/memory.current", "")
	r.remove("kubepods/besteffort/pod001/memory.current")
	r.expectUsages("000=1000")
	r.remove("kubepods/besteffort/pod001")
	r.pod("kubepods/besteffort/podnew", 7)
	r.expectUsages("000=1000 new=7")
	// It is removed during a search that another pod causes.
	r.write("kubepods/besteffort/podnew/memory.current", "")
	r.pod("kubepods/besteffort/podthird", 3)
	r.expectUsages("000=1000 third=3")
	r.remove("kubepods/besteffort/podnew")
	r.pod("kubepods/besteffort/podnewer", 8)
	r.expectUsages("000=1000 newer=8 third=3")
}

// TestUnreadablePodIsNotSearchedForEachTime: a search allocates.
func TestUnreadablePodIsNotSearchedForEachTime(t *testing.T) {
	r := newLookRig(t, 2)
	r.write("kubepods/besteffort/pod001/memory.current", "not a number\n")
	r.expectUsages("000=1000")
	r.now = r.now.Add(time.Millisecond)
	r.expectUsages("000=1000")
	searched := r.quick.open.scanned
	for range 3 {
		r.now = r.now.Add(time.Second)
		r.expectUsages("000=1000")
	}
	if r.quick.open.scanned != searched {
		t.Errorf("searched at %v, then at %v", searched, r.quick.open.scanned)
	}
}

// TestReplacedQOSClassIsSearched: a class that is made anew has as many cgroups in it.
func TestReplacedQOSClassIsSearched(t *testing.T) {
	r := newLookRig(t, 0)
	r.write("kubepods/burstable/memory.stat", "inactive_file 0\n")
	r.expectUsages("")
	r.replace("kubepods/burstable")
	r.pod("kubepods/burstable/podnew", 7)
	r.remove("kubepods/burstable/memory.stat")
	r.expectUsages("new=7")
}

// TestSearchWhereLinksDoNotCount: the directories of /proc/sys have one link, those of lxcfs two, whatever is in them.
func TestSearchWhereLinksDoNotCount(t *testing.T) {
	m := newLookRig(t, 0).quick
	for _, c := range []struct {
		dir   string
		blind bool
	}{{"/sys/kernel", false}, {"/proc/sys/net", true}} { // Those of sysfs are like those of cgroups.
		m.open.blind = false
		if entries, err := m.search(c.dir); err != nil || len(entries) == 0 || m.open.blind != c.blind {
			t.Errorf("%s: %d entries, %v, blind %t, want %t", c.dir, len(entries), err, m.open.blind, c.blind)
		}
	}
}

func TestPodsCgroupIsMadeLater(t *testing.T) {
	r := newLookRig(t, 0)
	r.remove("kubepods")
	r.expectUsages("")
	r.write("kubepods/memory.current", "5000\n")
	r.pod("kubepods/besteffort/podnew", 7)
	r.now = r.now.Add(time.Second)
	r.expectUsages("new=7")
}

// TestSearchThatFails: pods are kept while this process has too many open files, and searched for a second later.
func TestSearchThatFails(t *testing.T) {
	r := newLookRig(t, 2)
	r.expectUsages("000=1000 001=1001")
	all := r.ReadMemory(snapshot.Counting{})
	r.pod("kubepods/besteffort/podnew", 7)
	during, reading := "", snapshot.MemoryReading{}
	withoutNewFiles(t, func() {
		during = r.usages()
		reading = r.ReadMemory(snapshot.Counting{})
	})
	if during != "000=1000 001=1001" {
		t.Errorf("while nothing can be opened: %q", during)
	}
	if len(reading.ByPod) != len(all.ByPod) {
		t.Errorf("a reading meanwhile has %d pods, want %d", len(reading.ByPod), len(all.ByPod))
	}
	r.now = r.now.Add(time.Second)
	r.expectUsages("000=1000 001=1001 new=7")
}

// TestContainersThatCouldNotBeSearched: they are searched again when that is possible, and read before their pod.
func TestContainersThatCouldNotBeSearched(t *testing.T) {
	const pod = "kubepods/besteffort/pod000"
	r := newLookRig(t, 1)
	r.usages()
	withoutNewFiles(t, func() { _, _ = r.ReadPod(snapshot.Counting{}, "000") }) // It fails.
	order := accesses(t, []string{filepath.Join(r.root, pod, "c/memory.stat"), filepath.Join(r.root, pod, "memory.stat")})
	if _, err := r.ReadPod(snapshot.Counting{}, "000"); err != nil {
		t.Fatal(err)
	}
	if got := order(); len(got) == 0 || got[0] != 0 {
		t.Errorf("the container was not read before its pod: %v", got)
	}
}

// withoutNewFiles calls something while this process may not open files.
func withoutNewFiles(t *testing.T, call func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}()
	call()
}

// TestRuntimeIsToldWhereFilesAreNotOfTheKernel: another process may have to answer, for example lxcfs.
func TestRuntimeIsToldWhereFilesAreNotOfTheKernel(t *testing.T) {
	r := newLookRig(t, 1)
	r.usages()
	if !r.quick.files.calls.Told {
		t.Error("the runtime is not told about calls for a plain file system")
	}
	if _, err := r.quick.search("/proc/self"); err != nil || r.quick.files.calls.Told {
		t.Errorf("%v, told %t, want short calls for procfs", err, r.quick.files.calls.Told)
	}
}

// TestChangedContainersAreReadFirst: a pod is made anew, and a runtime divides the cgroup of a container.
func TestChangedContainersAreReadFirst(t *testing.T) {
	const pod = "kubepods/besteffort/pod000"
	for _, c := range []struct {
		name  string
		first string
		then  func(r *lookRig)
	}{
		{"made anew", pod + "/c", func(r *lookRig) { r.replace(pod); r.pod(pod, 1000) }},
		{"divided", pod + "/c/container", func(r *lookRig) {
			r.write(pod+"/c/container/memory.stat", "anon 600\n")
			r.now = r.now.Add(compareEvery)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newLookRig(t, 1)
			read := func() {
				r.usages()
				if _, err := r.ReadPod(snapshot.Counting{}, "000"); err != nil {
					t.Fatal(err)
				}
			}
			if c.name == "made anew" {
				r.remove(pod + "/c")
			}
			read()
			c.then(r)
			p := &r.quick.open.byPod[0]
			p.usage.Close() // As after ENODEV.
			order := accesses(t, []string{filepath.Join(r.root, c.first, "memory.stat"),
				filepath.Join(r.root, pod, "memory.stat")})
			read()
			if got := order(); len(got) == 0 || got[0] != 0 {
				t.Errorf("it was not read before its pod: %v", got)
			}
		})
	}
}

func TestAmountsAreBounded(t *testing.T) {
	for value, want := range map[string]int64{
		" 7 kB": 7 << 10, " 7": 7, " 281474976710656 kB": most, " 288230376151711744": most,
		" 281474976710657 kB": -1, " 18014398509481984 kB": -1, " 288230376151711745": -1, " 18446744073709551616": -1,
	} {
		if n, ok := amountOf([]byte(value)); ok != (want >= 0) || ok && n != want {
			t.Errorf("%q: %d, %t, want %d", value, n, ok, want)
		}
	}
}
