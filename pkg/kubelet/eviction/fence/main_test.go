package fence

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// hogTask is the environment variable that makes this program a hog in a cgroup instead of testing: a list of files
// cgroup.procs to join.
const hogTask = "PLIMSOLL_HOG"

func TestMain(m *testing.M) {
	if task := os.Getenv(hogTask); task != "" {
		if err := beHog(task); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beHog joins cgroups, and then executes one command of stdin after the other, each answered by a line.
func beHog(task string) error {
	for path := range strings.SplitSeq(task, ":") {
		if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return err
		}
	}
	fmt.Println("joined")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(argument)
		if err != nil {
			return err
		}
		switch command {
		case "grow":
			err = use(n, unix.MAP_PRIVATE|unix.MAP_ANON)
		case "tmpfs":
			err = use(n, unix.MAP_SHARED|unix.MAP_ANON)
		case "cache":
			err = fillCache(n)
		case "fork":
			err = exec.Command("sleep", strconv.Itoa(n)).Start()
		}
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("done")
	}
	return nil
}

func use(mebibytes, flags int) error {
	memory, err := unix.Mmap(-1, 0, mebibytes<<20, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return err
	}
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	return nil
}

// fillCache writes a file, so that its pages are charged to this process, and flushes it, so that they are clean. The
// file is removed when the process ends.
func fillCache(mebibytes int) error {
	file, err := os.CreateTemp(os.Getenv("PLIMSOLL_HOG_DIR"), "cache")
	if err != nil {
		return err
	}
	for range mebibytes {
		if _, err := file.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	return file.Sync()
}

// names are the files of a hierarchy with the usage and the limits of memory.
type names struct{ usage, limit, swap, peak string }

var (
	namesV1 = names{
		"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max_usage_in_bytes",
	}
	namesV2 = names{"memory.current", "memory.max", "memory.swap.max", "memory.peak"}
)

// pod is a cgroup of a pod in the real hierarchies of this machine, with one cgroup of a container.
type pod struct {
	names
	t      *testing.T
	config Config
	// cgroup is the path of the pod.
	cgroup string
}

// newPod creates a cgroup for a pod, below one that has a limit of its own, far above what tests use, so that whatever
// goes wrong stays there.
func newPod(t *testing.T) pod {
	t.Helper()
	p := pod{
		t: t, names: namesV1,
		config: Config{Mounts: map[string]string{"memory": "/sys/fs/cgroup/memory", "pids": "/sys/fs/cgroup/pids"}},
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		p.names = namesV2
		p.config = Config{Unified: true, Mounts: map[string]string{"memory": "/sys/fs/cgroup", "pids": "/sys/fs/cgroup"}}
	}
	parent := fmt.Sprintf("/plimsoll-fence-%d-%s", os.Getpid(), strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")))
	p.cgroup = parent + "/pod"
	for _, mount := range p.mounts() {
		for _, dir := range []string{parent, p.cgroup, p.cgroup + "/container", parent + "/neighbour"} {
			if err := os.Mkdir(filepath.Join(mount, dir), 0o755); err != nil {
				t.Fatalf("this test needs root and cgroups: %v", err)
			}
			t.Cleanup(func() { // The deepest cgroup is removed first.
				await.Until(t, "removing "+dir, func() error { return os.Remove(filepath.Join(mount, dir)) })
			})
		}
	}
	if p.config.Unified {
		p.enableControllers(parent)
		p.enableControllers(p.cgroup)
	}
	p.write("memory", parent, p.names.limit, 600<<20)
	return p
}

// makeContainer creates the cgroup of another container.
func (p pod) makeContainer(name string) {
	p.t.Helper()
	for _, mount := range p.mounts() {
		dir := filepath.Join(mount, p.cgroup, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { await.Until(p.t, "removing "+dir, func() error { return os.Remove(dir) }) })
	}
}

// mounts are the mount points of the hierarchies, each once.
func (p pod) mounts() []string { return slices.Compact(slices.Sorted(maps.Values(p.config.Mounts))) }

// enableControllers gives the children of a cgroup v2 the controllers that limits need.
func (p pod) enableControllers(cgroup string) {
	p.t.Helper()
	path := filepath.Join(p.config.Mounts["memory"], cgroup, "cgroup.subtree_control")
	if err := os.WriteFile(path, []byte("+memory +pids"), 0); err != nil {
		p.t.Fatal(err)
	}
}

func (p pod) write(controller, cgroup, name string, value int64) {
	p.t.Helper()
	path := filepath.Join(p.config.Mounts[controller], cgroup, name)
	if err := os.WriteFile(path, []byte(strconv.FormatInt(value, 10)), 0); err != nil {
		p.t.Fatal(err)
	}
}

func (p pod) number(controller, name string) int64 {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.config.Mounts[controller], p.cgroup, name))
	if err != nil {
		p.t.Fatal(err)
	}
	n, err := parse(name, data)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p pod) usage() int64   { return p.number("memory", p.names.usage) }
func (p pod) limit() int64   { return p.number("memory", p.names.limit) }
func (p pod) swap() int64    { return p.number("memory", p.names.swap) }
func (p pod) highest() int64 { return p.number("memory", p.peak) }

func (p pod) setLimit(bytes int64) { p.write("memory", p.cgroup, p.names.limit, bytes) }
func (p pod) setSwap(bytes int64)  { p.write("memory", p.cgroup, p.names.swap, bytes) }

// endsAsAWhole returns whether the OOM killer ends the pod as a whole. On v1 it never does.
func (p pod) endsAsAWhole() bool {
	p.t.Helper()
	return p.config.Unified && p.number("memory", "memory.oom.group") == 1
}

// fencer returns a Fencer whose writer runs until the test ends.
func (p pod) fencer() *Fencer {
	p.t.Helper()
	f := New(p.config)
	runFencer(p.t, f)
	return f
}

// fence sets a fence and returns it.
func (p pod) fence(f *Fencer, l Limits) *Fence {
	p.t.Helper()
	fence, err := f.Fence(p.cgroup, l)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(fence.Close)
	return fence
}

func (p pod) check(f *Fence) State {
	p.t.Helper()
	s, err := f.Check()
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// hog is a process in a cgroup. It is killed when the test ends.
type hog struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
}

// hog starts a hog in the container of the pod, neighbour one beside the pod.
func (p pod) hog() *hog       { p.t.Helper(); return p.start(p.cgroup + "/container") }
func (p pod) neighbour() *hog { p.t.Helper(); return p.start(filepath.Dir(p.cgroup) + "/neighbour") }

func (p pod) start(cgroup string) *hog {
	p.t.Helper()
	var procs []string
	for _, mount := range p.mounts() {
		procs = append(procs, filepath.Join(mount, cgroup, "cgroup.procs"))
	}
	h := &hog{t: p.t, cmd: exec.Command(os.Args[0])}
	h.cmd.Env = append(os.Environ(), hogTask+"="+strings.Join(procs, ":"), "PLIMSOLL_HOG_DIR="+p.t.TempDir())
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	theirs, in, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	h.cmd.Stdin, h.in = theirs, in
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	_ = theirs.Close()
	h.answer("joined")
	p.t.Cleanup(func() {
		_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
		_ = in.Close()
		_ = h.cmd.Wait()
	})
	return h
}

func (h *hog) answer(want string) {
	h.t.Helper()
	if line, err := h.out.ReadString('\n'); err != nil || line != want+"\n" {
		h.t.Fatalf("the hog answers %q, %v", line, err)
	}
}

// do executes a command: grow, tmpfs or cache, and an amount in MiB, or fork.
func (h *hog) do(command string, n int) {
	h.t.Helper()
	h.begin(command, n)
	h.answer("done")
}

// begin does not wait for the answer.
func (h *hog) begin(command string, n int) {
	h.t.Helper()
	if _, err := fmt.Fprintln(h.in, command, n); err != nil {
		h.t.Fatal(err)
	}
}

// awaitKill waits for the end of the process by SIGKILL.
func (h *hog) awaitKill() {
	h.t.Helper()
	timer := time.AfterFunc(time.Minute, func() { _ = h.cmd.Process.Kill() })
	err := h.cmd.Wait()
	var exit *exec.ExitError
	if !timer.Stop() || !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		h.t.Fatalf("the hog was not killed: %v", err)
	}
}
