package cgroupkill

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// testCgroup is a cgroup in real hierarchies, which the test has created.
type testCgroup struct {
	t      testing.TB
	config Config
	name   string
	// noKill is for Linux before 5.14: the freezer of v2 and pidfds.
	noKill bool
}

func (k testCgroup) killer() *Killer {
	killer := New(k.config)
	killer.unified = k.config.Unified && !k.noKill
	return killer
}

// newTestCgroup creates a cgroup in each of the hierarchies, and removes it with everything in it when the test ends.
func newTestCgroup(t testing.TB, config Config) testCgroup {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root, to create cgroups")
	}
	k := testCgroup{
		t: t, config: config,
		name: fmt.Sprintf("/plimsoll-test-%d-%s", os.Getpid(),
			strings.ToLower(t.Name()[strings.LastIndexByte(t.Name(), '/')+1:])),
	}
	t.Cleanup(k.remove)
	k.mkdir("")
	return k
}

// hierarchies returns those of this machine, by their names. A machine with cgroup v2 alone has no v1.
func hierarchies(t testing.TB) map[string]Config {
	t.Helper()
	found := map[string]Config{}
	v1 := map[string]string{"freezer": "/sys/fs/cgroup/freezer", "pids": "/sys/fs/cgroup/pids"}
	if hasFile(v1["freezer"], "cgroup.procs") && hasFile(v1["pids"], "cgroup.procs") {
		found["v1"] = Config{Mounts: v1}
	}
	for _, mount := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} { // the first one is that of hybrid mode
		if hasFile(mount, "cgroup.controllers") {
			found["v2"] = Config{Unified: true, Mounts: map[string]string{"": mount}}
		}
	}
	if len(found) == 0 {
		t.Fatal("this test needs cgroups, and /sys/fs/cgroup has none")
	}
	return found
}

func hasFile(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func (k testCgroup) mkdir(below string) string {
	k.t.Helper()
	for _, mount := range k.config.Mounts {
		if err := os.MkdirAll(filepath.Join(mount, k.name, below), 0o755); err != nil {
			k.t.Fatalf("this machine does not permit cgroups: %v", err)
		}
	}
	return filepath.Join(k.name, below)
}

// join moves a process into a cgroup.
func (k testCgroup) join(pid int, cgroup string) {
	k.t.Helper()
	for _, mount := range k.config.Mounts {
		if err := writeFile(filepath.Join(mount, cgroup, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			k.t.Fatal(err)
		}
	}
}

func (k testCgroup) remove() {
	deadline := time.Now().Add(time.Minute)
	for _, mount := range k.config.Mounts {
		root := filepath.Join(mount, k.name)
		for removeTree(root) != nil && time.Now().Before(deadline) {
			// This does not use the code under test.
			for _, m := range k.members() {
				_ = syscall.Kill(m.pid, syscall.SIGKILL)
			}
			k.thaw()
			<-time.After(10 * time.Millisecond)
		}
		if _, err := os.Stat(root); err == nil {
			k.t.Errorf("%s is left", root)
		}
	}
}

func (k testCgroup) members() []member {
	found, err := newTree(k.config).pids(k.name)
	if err != nil {
		k.t.Error(err)
	}
	return found
}

// removeTree removes a cgroup and those below it, the lowest first.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ignoreRemoved(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return ignoreRemoved(os.Remove(dir))
}

// inCgroup starts a script whose shell is in the cgroup before it runs the script.
func (k testCgroup) inCgroup(cgroup, script string) child {
	k.t.Helper()
	var join strings.Builder
	for _, mount := range k.config.Mounts {
		fmt.Fprintf(&join, "echo $$ > %s; ", filepath.Join(mount, cgroup, "cgroup.procs"))
	}
	c := start(k.t, join.String()+script)
	// Thaw before waiting for the child: on v1 a frozen process does not end.
	k.t.Cleanup(k.thaw)
	return c
}

// thaw thaws all cgroups without the code under test.
func (k testCgroup) thaw() {
	for _, mount := range k.config.Mounts {
		_ = filepath.WalkDir(filepath.Join(mount, k.name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				for file, text := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
					if f, err := os.OpenFile(filepath.Join(path, file), os.O_WRONLY, 0); err == nil {
						_, _ = f.WriteString(text)
						_ = f.Close()
					}
				}
			}
			return nil
		})
	}
}

// forkBomb forks children that fork children, as fast as it can; bounded by the pids controller.
const forkBomb = `echo; bomb() { while :; do (bomb) & sleep 0.01; done; }; bomb 2>/dev/null`

func forEachHierarchy(t *testing.T, test func(t *testing.T, k testCgroup)) {
	for name, config := range hierarchies(t) {
		if config.Unified {
			t.Run(name, func(t *testing.T) { test(t, newTestCgroup(t, config)) })
		}
	}
	withPidfd(t, test)
}

// withPidfd runs a test in each hierarchy, where processes are killed one by one.
func withPidfd(t *testing.T, test func(t *testing.T, k testCgroup)) {
	for name, config := range hierarchies(t) {
		t.Run(name+"pidfd", func(t *testing.T) {
			k := newTestCgroup(t, config)
			k.noKill = true
			test(t, k)
		})
	}
}

func TestKernelKillsAllProcesses(t *testing.T) {
	forEachHierarchy(t, func(t *testing.T, k testCgroup) {
		pod := k.mkdir("pod")
		var children []child
		for i := range 20 {
			children = append(children, k.inCgroup(k.mkdir(fmt.Sprintf("pod/container%d", i%3)), idleScript))
		}
		outside := k.inCgroup(k.mkdir("other/container"), idleScript)
		killer := k.killer()
		await.Until(t, "sleeping processes", func() error { // the script has written its line before it executes sleep
			found, err := killer.Processes(pod)
			if err != nil || len(found) != 20 || found[0].Name != "sleep" || found[0].State != 'S' {
				return fmt.Errorf("found %v: %w", found, err)
			}
			return nil
		})
		if err := killer.Kill(withTimeout(t, time.Minute), pod); err != nil {
			t.Fatal(err)
		}
		for _, c := range children {
			c.awaitEnd(t)
		}
		if !outside.alive() {
			t.Error("killed a process of another cgroup")
		}
	})
}

func TestKernelKillsForkingProcesses(t *testing.T) {
	forEachHierarchy(t, func(t *testing.T, k testCgroup) {
		pod := k.mkdir("pod")
		if mount, ok := k.config.Mounts["pids"]; ok {
			if err := writeFile(filepath.Join(mount, pod, "pids.max"), "200"); err != nil {
				t.Fatal(err)
			}
		}
		script := forkBomb
		if k.config.Mounts["pids"] == "" {
			// Without a limit of the kernel: a chain of processes, each with a successor, that ends after a while.
			script = `echo; n=0; while [ $n -lt 3000 ]; do n=$((n+1)); (sleep 0.05 & exec sleep 0.01); done`
		}
		bomb := k.inCgroup(k.mkdir("pod/container"), script)
		for deadline := time.Now().Add(time.Minute); len(k.members()) < 3; <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("nothing forks")
			}
		}
		if err := k.killer().Kill(withTimeout(t, time.Minute), pod); err != nil {
			t.Fatal(err)
		}
		bomb.awaitEnd(t)
		if left := k.members(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// Processes end by themselves all the time while they are being killed.
func TestKernelKillsEndingProcesses(t *testing.T) {
	forEachHierarchy(t, func(t *testing.T, k testCgroup) {
		pod := k.mkdir("pod")
		for range 5 {
			k.inCgroup(pod, `echo; n=0; while [ $n -lt 2000 ]; do n=$((n+1)); sleep 0.001; done`)
		}
		if err := k.killer().Kill(withTimeout(t, time.Minute), pod); err != nil {
			t.Fatal(err)
		}
	})
}

// A paused container, or a pod that was frozen by an agent which was killed before it thawed the pod.
func TestKernelKillsFrozenProcesses(t *testing.T) {
	forEachHierarchy(t, func(t *testing.T, k testCgroup) {
		pod := k.mkdir("pod")
		victim := k.inCgroup(k.mkdir("pod/container"), idleScript)
		freezer := freezerV1(k.config.Mounts["freezer"])
		if k.config.Mounts["freezer"] == "" {
			freezer = freezerV2(k.config.Mounts[""])
		}
		for _, cgroup := range []string{pod, pod + "/container"} {
			freezer.freeze(cgroup)
		}
		if err := k.killer().Kill(withTimeout(t, time.Minute), pod); err != nil {
			t.Fatal(err)
		}
		victim.awaitEnd(t)
	})
}

// The process moves out between the list and the signal.
func TestKernelSparesProcessThatLeft(t *testing.T) {
	withPidfd(t, func(t *testing.T, k testCgroup) {
		pod := k.mkdir("pod")
		stays, leaves := k.inCgroup(pod, idleScript), k.inCgroup(pod, idleScript)
		killer := k.killer()
		other := k.mkdir("other")
		killer.freezer = freezer{} // on v1 a frozen process cannot leave the freezer's cgroup
		killer.onOpened = func() { k.join(leaves.cmd.Process.Pid, other) }
		if err := killer.Kill(withTimeout(t, time.Minute), pod); err != nil {
			t.Fatal(err)
		}
		stays.awaitEnd(t)
		if !leaves.alive() {
			t.Error("killed the process that left")
		}
	})
}

// A frozen process does not exit, although it was killed, and frees its memory nevertheless: as one without a share of
// the CPU would.
func TestKernelReleasesMemory(t *testing.T) {
	config, found := hierarchies(t)["v1"]
	if !found {
		t.Fatal("this test needs the freezer of cgroup v1")
	}
	k := newTestCgroup(t, config)
	pod := k.mkdir("pod")
	victim := k.inCgroup(pod, `x=$(head -c 30000000 /dev/zero | tr '\0' x); echo; read y < /dev/zero`)
	killer := k.killer()
	killer.freezer.freeze(pod)
	if err := syscall.Kill(victim.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	resident := func() int {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", victim.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		var size, pages int
		if _, err := fmt.Sscan(string(status), &size, &pages); err != nil {
			t.Fatal(err)
		}
		return pages * os.Getpagesize()
	}
	if before := resident(); before < 20_000_000 || !victim.alive() {
		t.Fatalf("%d bytes before", before)
	}
	<-killer.release(pod, ended())
	if after := resident(); after > 10_000_000 || !victim.alive() {
		t.Errorf("%d bytes afterwards, alive %t", after, victim.alive())
	}
	if running := make(chan struct{}); killer.release(pod, running) != (<-chan struct{})(running) {
		t.Error("released again while memory is being released")
	}
	if err := killer.Kill(withTimeout(t, time.Minute), pod); err != nil {
		t.Fatal(err)
	}
	victim.awaitEnd(t)
}
