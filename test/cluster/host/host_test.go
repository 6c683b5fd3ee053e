package host

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

func TestParseStat(t *testing.T) {
	tail := strings.Repeat(" 0", 16) + " 7 0 4711 0 0"
	for _, tc := range []struct{ line, state string }{
		{"12 (sh) S" + tail, "S"},
		{"12 (a b) c) Z" + tail, "Z"},
	} {
		state, threads, started, err := parseStat(tc.line)
		if err != nil || state != tc.state || threads != 7 || started != 4711 {
			t.Errorf("parseStat(%q) = %q, %d, %d, %v", tc.line, state, threads, started, err)
		}
	}
	for _, line := range []string{"", "12 (sh", "12 (sh) S 1 2", "12 (sh) S" + strings.Repeat(" x", 30)} {
		if _, _, _, err := parseStat(line); err == nil {
			t.Errorf("parseStat(%q) is no error", line)
		}
	}
}

func TestMountPoint(t *testing.T) {
	got, ok := mountPoint(`36 35 98:0 /mnt1 /a\040dir/b rw,noatime master:1 - ext3 /dev/root rw`)
	if !ok || got != "/a dir/b" {
		t.Errorf("mountPoint = %q, %v", got, ok)
	}
}

func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		path, dir string
		want      bool
	}{
		{"/a/b", "/a", true},
		{"/a", "/a", true},
		{"/ab", "/a", false},
		{"/", "/a", false},
		{"/a/b", "/a/", true},
	} {
		if got := within(tc.path, tc.dir); got != tc.want {
			t.Errorf("within(%q, %q) = %v", tc.path, tc.dir, got)
		}
	}
}

func TestChainsAndRules(t *testing.T) {
	rules := []string{
		"-P INPUT ACCEPT",
		"-N KUBE-FIREWALL",
		"-N DOCKER",
		"-N CNI-HOSTPORT-DNAT",
		`-A INPUT -m comment --comment "two words" -j KUBE-FIREWALL`,
	}
	chains := chainsIn(rules)
	if !slices.Equal(chains, []string{"KUBE-FIREWALL", "CNI-HOSTPORT-DNAT"}) {
		t.Errorf("chains are %v", chains)
	}
	args := splitRule(rules[4])
	want := []string{"-A", "INPUT", "-m", "comment", "--comment", "two words", "-j", "KUBE-FIREWALL"}
	if !slices.Equal(args, want) {
		t.Errorf("arguments are %q", args)
	}
	if !jumpsTo(args, chains) || jumpsTo(args, []string{"DOCKER"}) {
		t.Error("the rule jumps to KUBE-FIREWALL only")
	}
}

func TestIsShimOf(t *testing.T) {
	args := strings.Split("/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-address\x00/x/containerd.sock\x00",
		"\x00")
	if !isShimOf(args, "/x/containerd.sock") || isShimOf(args, "/y/containerd.sock") || isShimOf([]string{""}, "/x") {
		t.Error("a shim belongs to the containerd whose socket it names")
	}
}

func TestProcessIsFoundAndStopped(t *testing.T) {
	dir := t.TempDir()
	processes := Processes{LogDir: dir, RunDir: dir}
	started, err := processes.Start(Command{
		Name: "idle", Path: "/bin/sh", Args: []string{"-c", "echo up; exec sleep 600"},
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := processes.Find("idle")
	if err != nil || found != started || !found.Alive() {
		t.Fatalf("found %v, %v; started %v", found, err, started)
	}
	if other := (Process{PID: found.PID, Started: found.Started + 1}); other.Alive() {
		t.Error("a process of the same id that started at another time is another one")
	}
	if err := processes.Stop(context.Background(), "idle", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if found.Alive() {
		t.Error("the process runs after it was stopped")
	}
	if found, err := processes.Find("idle"); err != nil || found != (Process{}) {
		t.Errorf("after the stop: %v, %v", found, err)
	}
}

// leaderEnds is set in the environment of a test program whose first thread ends before the others.
const leaderEnds = "PLIMSOLL_TEST_LEADER_ENDS"

// init runs on the first thread. That ends; the program does when its input ends.
func init() {
	if os.Getenv(leaderEnds) == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

func TestProcessRunsUntilItsLastThreadHasEnded(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), leaderEnds+"=1")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	proc := FindProcess(cmd.Process.Pid)
	isZombie := func(context.Context) (bool, error) {
		state, _, _, err := readStat(proc.PID)
		return state == "Z", err
	}
	if err := wait.PollUntilContextTimeout(t.Context(), pollInterval, time.Minute, true, isZombie); err != nil {
		t.Fatal("the first thread has not ended: ", err)
	}
	if !proc.Alive() {
		t.Error("a process of which threads run does not count as alive")
	}
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	if !proc.gone(t.Context(), time.Minute) {
		t.Error("a process without threads counts as alive")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestProcessThatIgnoresTermIsKilled(t *testing.T) {
	dir := t.TempDir()
	processes := Processes{LogDir: dir, RunDir: dir}
	proc, err := processes.Start(Command{
		Name: "stubborn", Path: "/bin/sh", Args: []string{"-c", "trap '' TERM; while true; do sleep 1; done"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := processes.Stop(context.Background(), "stubborn", 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if proc.Alive() {
		t.Error("the process is still there")
	}
}

func TestRemoveTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTree(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the folder is still there")
	}
	if err := checkNoMounts("/proc"); err == nil {
		t.Error("a mounted folder is to be refused")
	}
}

func TestFootprintIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "footprint.json")
	before := Footprint{
		Sysctls: map[string]string{"vm/panic_on_oom": "0"}, Absent: []string{"/opt/cni"},
		Chains: []string{"iptables nat CNI-X"},
	}
	if err := before.Save(file); err != nil {
		t.Fatal(err)
	}
	after, err := LoadFootprint(file)
	if err != nil {
		t.Fatal(err)
	}
	if after.Sysctls["vm/panic_on_oom"] != "0" || !slices.Equal(after.Absent, before.Absent) ||
		!slices.Equal(after.Chains, before.Chains) {
		t.Errorf("loaded %+v", after)
	}
	if _, err := LoadFootprint(file + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file is %v", err)
	}
}

func TestRootCgroupIsNeverRemoved(t *testing.T) {
	for _, name := range []string{"", "/", "//", "/x/.."} {
		if err := RemoveCgroup(context.Background(), name); err == nil {
			t.Errorf("removed %q", name)
		}
	}
}

func TestPodCgroupsAreFoundInEveryClass(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{
		"poda/container", "burstable/podb", "besteffort/podc/x", "besteffort/other",
		"kubepods-burstable.slice/kubepods-burstable-podd_1.slice/cri-containerd-x.scope", "kubepods-pode_2.slice",
	} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string][]string{}
	if err := addPodCgroups(root, found); err != nil {
		t.Fatal(err)
	}
	for uid, dir := range map[string]string{
		"a": "poda", "b": "burstable/podb", "c": "besteffort/podc", "e-2": "kubepods-pode_2.slice",
		"d-1": "kubepods-burstable.slice/kubepods-burstable-podd_1.slice",
	} {
		if got := found[uid]; len(got) != 1 || got[0] != filepath.Join(root, dir) {
			t.Errorf("control groups of %s are %v, want %s", uid, got, dir)
		}
	}
	if len(found) != 5 {
		t.Errorf("found %v", found)
	}
	if err := addPodCgroups(filepath.Join(root, "gone"), found); err != nil {
		t.Errorf("a group that is gone: %v", err)
	}
}
