package notify

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// TestRefusedWindows: the kernel accepts short windows from root only, and none where it has no such triggers.
func TestRefusedWindows(t *testing.T) {
	const short, long = "some 10000 500000\x00", "some 40000 2000000\x00"
	for name, test := range map[string]struct {
		refusals []error
		writes   []string
		want     error
	}{
		"none":     {refusals: []error{nil}, writes: []string{short}},
		"short":    {refusals: []error{unix.EINVAL, nil}, writes: []string{short, long}},
		"all":      {refusals: []error{unix.EINVAL, unix.EINVAL}, writes: []string{short, long}, want: unix.EINVAL},
		"triggers": {refusals: []error{unix.EOPNOTSUPP}, writes: []string{short}, want: unix.EOPNOTSUPP},
		"privilege, for the long one": {
			refusals: []error{unix.EINVAL, unix.EPERM}, writes: []string{short, long}, want: unix.EPERM,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var writes []string
			err := request(func(text string) error {
				writes = append(writes, text)
				return test.refusals[len(writes)-1]
			})
			if !slices.Equal(writes, test.writes) || !errors.Is(err, test.want) || (err != nil) != (test.want != nil) {
				t.Errorf("writes %q, error %v", writes, err)
			}
		})
	}
}

// TestPressureWithoutFiles: a kernel with psi=0 has no files for stalls, one before Linux 5.2 none for local events.
func TestPressureWithoutFiles(t *testing.T) {
	dir, none := t.TempDir(), func() {}
	before := openFiles(t)
	if p, err := NewCgroupPressure(filepath.Join(dir, "none"), none); p != nil || !errors.Is(err, ErrNoCgroup) {
		t.Errorf("no cgroup: %v, %v", p, err)
	}
	if p, err := NewCgroupPressure(dir, none); p != nil || !errors.Is(err, ErrUnsupported) {
		t.Errorf("no files: %v, %v", p, err)
	}
	if p, err := newPressure(none, filepath.Join(dir, stallsFile), ""); p != nil || !errors.Is(err, ErrUnsupported) {
		t.Errorf("psi=0: %v, %v", p, err)
	}
	// The kernel refuses both files.
	unreadable := filepath.Join(dir, limitEventsFile)
	if err := errors.Join(os.Mkdir(unreadable, 0o700), os.Mkdir(filepath.Join(dir, stallsFile), 0o700)); err != nil {
		t.Fatal(err)
	}
	if p, err := NewCgroupPressure(dir, none); p != nil || !errors.Is(err, ErrUnsupported) {
		t.Errorf("refused: %v, %v", p, err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files open, %d before", after, before)
	}
}

func TestNodePressureEndsWithClose(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	before := openFiles(t)
	p, err := NewNodePressure(func() {})
	if err != nil {
		t.Fatal(err)
	}
	if p.Gone() {
		t.Error("the node is gone")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files open, %d before", after, before)
	}
}

// hierarchy returns the mount point of the hierarchy of cgroup v2, and whether memory is limited there.
func hierarchy() (mount string, memory bool) {
	mount = "/sys/fs/cgroup"
	if _, err := os.Stat(mount + "/cgroup.controllers"); err == nil {
		return mount, true
	}
	return mount + "/unified", false
}

// pressured makes a cgroup of cgroup v2 whose processes may use 32 MiB of memory. Where another hierarchy limits
// memory, a cgroup of that one has the limit. It returns the files with which a process joins.
func pressured(t *testing.T) (dir string, procs []string) {
	t.Helper()
	mount, memory := hierarchy()
	name := fmt.Sprintf("plimsoll-notify-%d-%s", os.Getpid(), strings.ToLower(t.Name()))
	dir = filepath.Join(mount, name)
	limit := filepath.Join(dir, "memory.max")
	dirs := []string{dir}
	if !memory {
		limit = filepath.Join(memoryV1, name, "memory.limit_in_bytes")
		dirs = append(dirs, filepath.Join(memoryV1, name))
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatalf("this test needs root and cgroup v2: %v", err)
		}
		t.Cleanup(func() {
			await.Until(t, "removing "+dir, func() error {
				if err := os.Remove(dir); !errors.Is(err, os.ErrNotExist) {
					return err
				}
				return nil
			})
		})
		procs = append(procs, filepath.Join(dir, "cgroup.procs"))
	}
	if err := os.WriteFile(limit, []byte(strconv.Itoa(32<<20)), 0); err != nil {
		t.Fatal(err)
	}
	return dir, procs
}

// thrash starts a process that joins the cgroups and reads a file of 64 MiB again and again. It is killed when the test
// ends.
func thrash(t *testing.T, procs []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), thrashTask+"="+strings.Join(procs, ":"), "PLIMSOLL_THRASH_DIR="+t.TempDir())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// thrashTask is the environment variable that makes this program thrash instead of testing: the files with which it
// joins cgroups.
const thrashTask = "PLIMSOLL_THRASH"

func thrashIn(procs string) error {
	for path := range strings.SplitSeq(procs, ":") {
		if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return err
		}
	}
	file, err := os.CreateTemp(os.Getenv("PLIMSOLL_THRASH_DIR"), "thrash")
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, 1<<20)
	for range 64 {
		if _, err := file.Write(block); err != nil {
			return err
		}
	}
	if err := file.Sync(); err != nil {
		return err
	}
	for {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{file}, block); err != nil {
			return err
		}
	}
}

// awaitEvent waits for an event, longer than any takes.
func awaitEvent(t *testing.T, what string, events <-chan struct{}) {
	t.Helper()
	select {
	case <-events:
	case <-time.After(2 * time.Minute):
		t.Fatalf("no event: %s", what)
	}
}

func eventsOf(make func(event func()) (*Pressure, error)) (*Pressure, <-chan struct{}, error) {
	events := newEvents()
	p, err := make(events.add)
	return p, events, err
}

type eventChannel chan struct{}

func newEvents() eventChannel { return make(eventChannel, 1) }

func (c eventChannel) add() {
	select {
	case c <- struct{}{}:
	default:
	}
}

// The cgroup reads more page cache than it may keep.
func TestCgroupPressureReportsStalls(t *testing.T) {
	dir, procs := pressured(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	p, events, err := eventsOf(func(event func()) (*Pressure, error) {
		return newPressure(event, filepath.Join(dir, stallsFile), "")
	})
	if err != nil {
		t.Fatal(err)
	}
	thrash(t, procs)
	for range 3 {
		awaitEvent(t, "stalls", events)
	}
	if p.Gone() {
		t.Error("the cgroup is gone")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Where cgroup v2 does not limit memory, a cgroup has no events of memory; those of its processes are reported in the
// same way.
func TestCgroupPressureReportsLocalEvents(t *testing.T) {
	dir, procs := pressured(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	file := limitEventsFile
	if _, memory := hierarchy(); !memory {
		file = "cgroup.events"
	}
	p, events, err := eventsOf(func(event func()) (*Pressure, error) {
		return newPressure(event, filepath.Join(dir, "none"), filepath.Join(dir, file))
	})
	if p == nil || !errors.Is(err, ErrUnsupported) {
		t.Fatal("no source beside a file that does not exist", err)
	}
	select {
	case <-events:
		t.Error("an event before there is a process")
	default:
	}
	thrash(t, procs)
	awaitEvent(t, "events", events)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestRemovedCgroup(t *testing.T) {
	for name, files := range map[string][2]string{"trigger": {stallsFile, ""}, "events": {"none", "cgroup.events"}} {
		t.Run(name, func(t *testing.T) {
			mount, _ := hierarchy()
			dir := filepath.Join(mount, fmt.Sprintf("plimsoll-notify-%d-removed", os.Getpid()))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatalf("this test needs root and cgroup v2: %v", err)
			}
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			events := ""
			if files[1] != "" {
				events = filepath.Join(dir, files[1])
			}
			p, err := newPressure(func() { t.Error("an event of a cgroup that is gone") }, filepath.Join(dir, files[0]), events)
			if p == nil {
				t.Fatal(err)
			}
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			await.True(t, "the cgroup is gone", p.Gone)
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEventsAreLimited: a file that changes all the time. A slow machine makes the pauses between events longer, never
// shorter.
func TestEventsAreLimited(t *testing.T) {
	mount, _ := hierarchy()
	dir := filepath.Join(mount, fmt.Sprintf("plimsoll-notify-%d-limited", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("this test needs root and cgroup v2: %v", err)
	}
	t.Cleanup(func() { await.Until(t, "removing "+dir, func() error { return os.Remove(dir) }) })
	var at []time.Time
	events := newEvents()
	p, err := newPressure(func() { at = append(at, time.Now()); events.add() }, filepath.Join(dir, "none"),
		filepath.Join(dir, "cgroup.events"))
	if p == nil {
		t.Fatal(err)
	}
	freeze := filepath.Join(dir, "cgroup.freeze")
	for n := 0; n < 4; {
		for _, state := range []string{"1", "0"} {
			if err := os.WriteFile(freeze, []byte(state), 0); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-events:
			n++
		default:
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for i := range at[1:] {
		if pause := at[i+1].Sub(at[i]); pause < eventPause {
			t.Errorf("an event %s after the one before", pause)
		}
	}
}
