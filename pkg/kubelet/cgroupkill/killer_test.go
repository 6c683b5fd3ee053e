package cgroupkill

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeCgroups is a directory with the files of a cgroup hierarchy.
type fakeCgroups struct {
	t    *testing.T
	root string
}

func newFakeCgroups(t *testing.T) fakeCgroups { return fakeCgroups{t: t, root: t.TempDir()} }

func (f fakeCgroups) write(path, text string) {
	f.t.Helper()
	full := filepath.Join(f.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f fakeCgroups) read(path string) string {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.root, path))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

// child is a process that runs until it is killed.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// pid is the line in cgroup.procs.
func (c child) pid() string { return fmt.Sprintln(c.cmd.Process.Pid) }

func (c child) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

func (c child) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		t.Fatal("the process was not killed")
	}
}

// start runs a script and returns once it has written its first line. Its process group is killed when the test ends.
func start(t testing.TB, script string) child {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := child{cmd: cmd, ended: make(chan struct{})}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-c.ended
	})
	return c
}

const idleScript = "echo; exec sleep 1000"

func withTimeout(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func TestV2WritesToCgroupKill(t *testing.T) {
	f := newFakeCgroups(t)
	f.write("pods/pod/cgroup.kill", "")
	f.write("pods/pod/cgroup.procs", "")
	k := New(Config{Unified: true, Mounts: map[string]string{"cpu": f.root, "memory": f.root}, Proc: f.root})
	if err := k.Kill(withTimeout(t, time.Minute), "/pods/pod"); err != nil {
		t.Fatal(err)
	}
	if got := f.read("pods/pod/cgroup.kill"); got != "1" {
		t.Errorf("cgroup.kill has %q", got)
	}
}

func TestV2WithoutCgroupKill(t *testing.T) {
	f := newFakeCgroups(t)
	victim, innocent := start(t, idleScript), start(t, idleScript)
	f.write("pods/pod/container/cgroup.procs", victim.pid())
	f.write("pods/pod/cgroup.freeze", "0")
	f.write("pods/pod/cgroup.events", "populated 1\nfrozen 1\n")
	k := New(Config{Unified: true, Mounts: map[string]string{"cpu": f.root}})
	// A process that was forked during the first round appears after it.
	forked := start(t, idleScript)
	var frozen []string
	k.onOpened = func() {
		frozen = append(frozen, f.read("pods/pod/cgroup.freeze"))
		f.write("pods/pod/container/cgroup.procs", victim.pid()+forked.pid())
	}
	if err := k.Kill(withTimeout(t, time.Minute), "/pods/pod"); err != nil {
		t.Fatal(err)
	}
	victim.awaitEnd(t)
	forked.awaitEnd(t)
	if len(frozen) < 2 || frozen[0] != "0" || frozen[1] != "1" {
		t.Errorf("frozen in each round: %q", frozen)
	}
	if !innocent.alive() {
		t.Error("killed a process of another cgroup")
	}
	if got := f.read("pods/pod/cgroup.freeze"); got != "0" {
		t.Errorf("left frozen: %q", got)
	}
}

// Freezing may take 100 ms, and a frozen process does not end: it is for processes that fork while they are being
// killed.
func TestProcessesThatDoNotForkAreNotFrozen(t *testing.T) {
	f := newFakeCgroups(t)
	a, b := start(t, idleScript), start(t, idleScript)
	f.write("pods/pod/cgroup.procs", a.pid()+b.pid())
	f.write("pods/pod/freezer.state", "before")
	k := New(Config{Mounts: map[string]string{"freezer": f.root}})
	rounds := 0
	k.onOpened = func() {
		rounds++
		if got := f.read("pods/pod/freezer.state"); got == "FROZEN" {
			t.Errorf("frozen in round %d", rounds)
		}
	}
	if err := k.Kill(withTimeout(t, time.Minute), "/pods/pod"); err != nil {
		t.Fatal(err)
	}
	a.awaitEnd(t)
	b.awaitEnd(t)
	if rounds == 0 || f.read("pods/pod/freezer.state") != "THAWED" {
		t.Errorf("%d rounds, freezer %q", rounds, f.read("pods/pod/freezer.state"))
	}
}

func TestV1WithoutFreezer(t *testing.T) {
	f := newFakeCgroups(t)
	a, b := start(t, idleScript), start(t, idleScript)
	f.write("pids/pods/pod/cgroup.procs", a.pid())
	f.write("memory/pods/pod/container/cgroup.procs", a.pid()+b.pid())
	k := New(Config{
		Mounts: map[string]string{"pids": filepath.Join(f.root, "pids"), "memory": filepath.Join(f.root, "memory")},
	})
	if err := k.Kill(withTimeout(t, time.Minute), "/pods/pod"); err != nil {
		t.Fatal(err)
	}
	a.awaitEnd(t)
	b.awaitEnd(t)
}

// Between the list and the signal the process leaves the cgroup, as if its PID was reused: the pidfd is open, and the
// PID is not in the cgroup any more.
func TestProcessThatLeftTheCgroupIsNotKilled(t *testing.T) {
	f := newFakeCgroups(t)
	stays, left := start(t, idleScript), start(t, idleScript)
	f.write("pods/pod/cgroup.procs", stays.pid()+left.pid())
	k := New(Config{Mounts: map[string]string{"pids": f.root}})
	rounds := 0
	k.onOpened = func() {
		rounds++
		f.write("pods/pod/cgroup.procs", stays.pid())
	}
	if err := k.Kill(withTimeout(t, time.Minute), "/pods/pod"); err != nil {
		t.Fatal(err)
	}
	stays.awaitEnd(t)
	if rounds == 0 || !left.alive() {
		t.Errorf("after %d rounds the process that left is alive: %t", rounds, left.alive())
	}
}

func TestKillReportsRemainingProcesses(t *testing.T) {
	f := newFakeCgroups(t)
	// A process of another PID namespace cannot be opened.
	f.write("pods/pod/cgroup.procs", "0\n")
	k := New(Config{Mounts: map[string]string{"pids": f.root}})
	err := k.Kill(withTimeout(t, 50*time.Millisecond), "/pods/pod")
	if !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "1 processes are left in cgroup /pods/pod") {
		t.Errorf("got %v", err)
	}
}

func TestKillSparesItselfAndProcess1(t *testing.T) {
	f := newFakeCgroups(t)
	f.write("pods/pod/cgroup.procs", fmt.Sprintf("1\n%d\n", os.Getpid()))
	k := New(Config{Mounts: map[string]string{"pids": f.root}})
	if all, err := k.signalAll("/pods/pod"); !all || err != nil {
		t.Errorf("all %t, error %v", all, err)
	}
}

func TestCgroupsOtherThanPodsAreRefused(t *testing.T) {
	k := New(Config{Mounts: map[string]string{"pids": t.TempDir()}})
	for _, cgroup := range []string{"", "/", "/kubepods", "kubepods/pod", "/kubepods/../..", "/kubepods/pod/", "//"} {
		if err := k.Kill(t.Context(), cgroup); !errors.Is(err, errNotAPod) {
			t.Errorf("%q: %v", cgroup, err)
		}
		if _, err := k.Processes(cgroup); !errors.Is(err, errNotAPod) {
			t.Errorf("%q: %v", cgroup, err)
		}
	}
}

func TestMissingCgroup(t *testing.T) {
	for _, unified := range []bool{false, true} {
		k := New(Config{Unified: unified, Mounts: map[string]string{"freezer": t.TempDir()}})
		if err := k.Kill(t.Context(), "/pods/gone"); err != nil {
			t.Error(err)
		}
	}
}

func TestProcesses(t *testing.T) {
	f := newFakeCgroups(t)
	f.write("cg/pods/pod/cgroup.procs", "9\n")
	f.write("cg/pods/pod/a/cgroup.procs", "3\n4\n5\n")
	f.write("cg/pods/pod/a/nested/cgroup.procs", "6\n")
	f.write("proc/3/stat", "3 (dd if) (x) D 1 1")
	f.write("proc/4/stat", "4 (zombie) Z 1 1")
	f.write("proc/4/task/4/stat", "4 (zombie) Z 1 1")
	f.write("proc/5/stat", "5 (headless) Z 1 1")
	f.write("proc/5/task/5/stat", "5 (headless) Z 1 1")
	f.write("proc/5/task/50/stat", "50 (headless) D 1 1")
	f.write("proc/5/task/51/stat", "51 (headless) S 1 1")
	f.write("proc/6/stat", "6 (sh) S 1 1")
	k := New(Config{
		Mounts: map[string]string{"freezer": filepath.Join(f.root, "cg")}, Proc: filepath.Join(f.root, "proc"),
	})
	got, err := k.Processes("/pods/pod")
	if err != nil {
		t.Fatal(err)
	}
	// 4 is a zombie, 9 has ended since it was listed.
	if text, want := fmt.Sprint(got), "[3 (dd if) (x) D 5 (headless) D 6 (sh) S]"; text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	if len(got) == 3 && (got[0].Cgroup != "a" || got[2].Cgroup != "a/nested") {
		t.Errorf("cgroups %q and %q", got[0].Cgroup, got[2].Cgroup)
	}
}

func TestUnreadableListIsAnError(t *testing.T) {
	f := newFakeCgroups(t)
	f.write("pods/pod/cgroup.procs", "12\nwhat\n")
	k := New(Config{Mounts: map[string]string{"pids": f.root}})
	if _, err := k.Processes("/pods/pod"); err == nil || !strings.Contains(err.Error(), "cgroup.procs") {
		t.Errorf("got %v", err)
	}
}
