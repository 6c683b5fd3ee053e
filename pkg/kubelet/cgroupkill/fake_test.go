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

// fake is a folder that looks like a cgroup hierarchy, with nothing behind it.
type fake struct {
	t    *testing.T
	root string
}

func newFake(t *testing.T) fake { return fake{t: t, root: t.TempDir()} }

func (f fake) write(path, text string) {
	f.t.Helper()
	full := filepath.Join(f.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f fake) read(path string) string {
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

// pid is as it is in cgroup.procs.
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
	case <-time.After(10 * time.Second):
		t.Fatal("the process was not killed")
	}
}

// start runs a script and returns once it has written its first line. Its process group is killed when the test ends.
func start(t *testing.T, script string) child {
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

const idle = "echo; exec sleep 1000"

func within(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func TestV2WritesToCgroupKill(t *testing.T) {
	f := newFake(t)
	f.write("pods/pod/cgroup.kill", "")
	f.write("pods/pod/cgroup.procs", "")
	k := New(Config{Unified: true, Mounts: map[string]string{"cpu": f.root, "memory": f.root}, Proc: f.root})
	if err := k.Kill(within(t, time.Minute), "/pods/pod"); err != nil {
		t.Fatal(err)
	}
	if got := f.read("pods/pod/cgroup.kill"); got != "1" {
		t.Errorf("cgroup.kill has %q", got)
	}
}

func TestV2WithoutCgroupKill(t *testing.T) {
	f := newFake(t)
	victim, innocent := start(t, idle), start(t, idle)
	f.write("pods/pod/container/cgroup.procs", victim.pid())
	f.write("pods/pod/cgroup.freeze", "0")
	f.write("pods/pod/cgroup.events", "populated 1\nfrozen 1\n")
	k := New(Config{Unified: true, Mounts: map[string]string{"cpu": f.root}})
	k.opened = func() {
		if got := f.read("pods/pod/cgroup.freeze"); got != "1" {
			t.Errorf("not frozen while the processes are opened: %q", got)
		}
	}
	if err := k.Kill(within(t, time.Minute), "/pods/pod"); err != nil {
		t.Fatal(err)
	}
	victim.awaitEnd(t)
	if !innocent.alive() {
		t.Error("killed a process of another cgroup")
	}
	if got := f.read("pods/pod/cgroup.freeze"); got != "0" {
		t.Errorf("left frozen: %q", got)
	}
}

func TestV1WithoutFreezer(t *testing.T) {
	f := newFake(t)
	a, b := start(t, idle), start(t, idle)
	f.write("pids/pods/pod/cgroup.procs", a.pid())
	f.write("memory/pods/pod/container/cgroup.procs", a.pid()+b.pid())
	k := New(Config{
		Mounts: map[string]string{"pids": filepath.Join(f.root, "pids"), "memory": filepath.Join(f.root, "memory")},
	})
	if err := k.Kill(within(t, time.Minute), "/pods/pod"); err != nil {
		t.Fatal(err)
	}
	a.awaitEnd(t)
	b.awaitEnd(t)
}

// Between the list and the signal the process ends and its PID goes to somebody else: the PID is open, and in the
// cgroup no more.
func TestPIDThatLeftIsNotHit(t *testing.T) {
	f := newFake(t)
	stays, left := start(t, idle), start(t, idle)
	f.write("pods/pod/cgroup.procs", stays.pid()+left.pid())
	k := New(Config{Mounts: map[string]string{"pids": f.root}})
	rounds := 0
	k.opened = func() {
		rounds++
		f.write("pods/pod/cgroup.procs", stays.pid())
	}
	if err := k.Kill(within(t, time.Minute), "/pods/pod"); err != nil {
		t.Fatal(err)
	}
	stays.awaitEnd(t)
	if rounds == 0 || !left.alive() {
		t.Errorf("after %d rounds the process that left is alive: %t", rounds, left.alive())
	}
}

func TestKillSaysWhatIsLeft(t *testing.T) {
	f := newFake(t)
	// Of another PID namespace: it cannot be opened.
	f.write("pods/pod/cgroup.procs", "0\n")
	k := New(Config{Mounts: map[string]string{"pids": f.root}})
	err := k.Kill(within(t, 50*time.Millisecond), "/pods/pod")
	if !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "1 processes are left in cgroup /pods/pod") {
		t.Errorf("got %v", err)
	}
}

func TestNeverItself(t *testing.T) {
	f := newFake(t)
	f.write("pods/pod/cgroup.procs", fmt.Sprintf("1\n%d\n", os.Getpid()))
	k := New(Config{Mounts: map[string]string{"pids": f.root}})
	if err := k.signal("/pods/pod"); err != nil {
		t.Error(err)
	}
}

func TestOnlyPodsAreKilled(t *testing.T) {
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

func TestNoCgroupNoProcesses(t *testing.T) {
	for _, unified := range []bool{false, true} {
		k := New(Config{Unified: unified, Mounts: map[string]string{"freezer": t.TempDir()}})
		if err := k.Kill(t.Context(), "/pods/gone"); err != nil {
			t.Error(err)
		}
	}
}

func TestProcesses(t *testing.T) {
	f := newFake(t)
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
	// 4 is dead, 9 has ended since it was listed.
	if text, want := fmt.Sprint(got), "[3 (dd if) (x) D 5 (headless) D 6 (sh) S]"; text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	if len(got) == 3 && (got[0].Cgroup != "a" || got[2].Cgroup != "a/nested") {
		t.Errorf("cgroups %q and %q", got[0].Cgroup, got[2].Cgroup)
	}
}

func TestUnreadableListIsAnError(t *testing.T) {
	f := newFake(t)
	f.write("pods/pod/cgroup.procs", "12\nwhat\n")
	k := New(Config{Mounts: map[string]string{"pids": f.root}})
	if _, err := k.Processes("/pods/pod"); err == nil || !strings.Contains(err.Error(), "cgroup.procs") {
		t.Errorf("got %v", err)
	}
}
