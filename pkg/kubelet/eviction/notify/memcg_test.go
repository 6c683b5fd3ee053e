package notify

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestUnsupported(t *testing.T) {
	if _, err := NewMemcg(t.TempDir(), func() {}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}

func TestRefusedRegistrationLeavesNothingOpen(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, controlFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := NewMemcg(dir, func() {})
	if err != nil {
		t.Fatal(err)
	}
	_ = m.Arm(1 << 30) // the runtime's poller comes with the first eventfd
	before := openFiles(t)
	if err := m.Arm(1 << 30); err == nil {
		t.Error("armed without a counter")
	}
	if err := m.Arm(0); err == nil {
		t.Error("armed at nothing")
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files open, %d before", after, before)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// memoryV1 is the memory controller of cgroup v1.
const memoryV1 = "/sys/fs/cgroup/memory"

// cgroup makes a memory cgroup of cgroup v1. What it returns charges memory to it, in a process of its own since the
// kernel charges processes and not threads.
func cgroup(t *testing.T) (dir string, charge func(mebibytes int)) {
	t.Helper()
	dir = filepath.Join(memoryV1, fmt.Sprintf("plimsoll-notify-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("this test needs root and a writable %s, to make a cgroup: %v", memoryV1, err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir, func(mebibytes int) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d", chargeTask, dir, mebibytes))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// chargeTask is the environment variable that makes this program charge memory to a cgroup instead of testing.
const chargeTask = "PLIMSOLL_CHARGE"

func TestMain(m *testing.M) {
	if task := os.Getenv(chargeTask); task != "" {
		if err := chargeTo(task); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	if task := os.Getenv(thrashTask); task != "" {
		fmt.Println(thrashIn(task))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func chargeTo(task string) error {
	dir, amount, _ := strings.Cut(task, ":")
	mebibytes, err := strconv.Atoi(amount)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return err
	}
	memory, err := unix.Mmap(-1, 0, mebibytes<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	return nil
}

// A machine with cgroup v2 alone has no such notifications.
func TestMemcgReportsCrossings(t *testing.T) {
	if _, err := os.Stat(memoryV1); errors.Is(err, os.ErrNotExist) {
		if _, err := NewMemcg("/sys/fs/cgroup", func() {}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("cgroup v2: error %v, want %v", err, ErrUnsupported)
		}
		return
	}
	dir, charge := cgroup(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	events := make(chan struct{}, 100)
	m, err := NewMemcg(dir, func() { events <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range []int64{64 << 20, 32 << 20, 16 << 20} {
		if err := m.Arm(level); err != nil {
			t.Fatal(err)
		}
	}
	drain(events)
	charge(24)
	select {
	case <-events:
	case <-time.After(time.Minute):
		t.Error("16 MiB were crossed and nobody was told")
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func drain(events chan struct{}) {
	for {
		select {
		case <-events:
		default:
			return
		}
	}
}
