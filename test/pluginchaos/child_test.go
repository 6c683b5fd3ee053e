package pluginchaos

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// naming is when a plugin first named a pod, on the monotonic clock of the kernel.
type naming struct {
	plugin string
	at     time.Duration
}

// child is a process of plugins.
type child struct {
	command *exec.Cmd
	stdin   io.Closer
	read    sync.WaitGroup

	mu    sync.Mutex
	named map[string]naming
	// counts is how often each kind of behavior has occurred.
	counts map[string]int
}

// startChild starts the plugins of a role, which create their sockets in the directory.
func startChild(t testing.TB, role, directory string) *child {
	t.Helper()
	c := &child{command: exec.Command(os.Args[0]), named: map[string]naming{}, counts: map[string]int{}}
	c.command.Env = append(os.Environ(), roleVariable+"="+role, directoryVariable+"="+directory)
	c.command.Stderr = os.Stderr
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := c.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	c.read.Go(func() { c.scan(stdout) })
	t.Cleanup(func() { c.stop(t) })
	return c
}

// scan reads the lines that the process writes: "named PLUGIN POD TIME" and "did BEHAVIOR".
func (c *child) scan(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		c.mu.Lock()
		var plugin, pod, what string
		var at int64
		if n, _ := fmt.Sscanf(lines.Text(), "named %s %s %d", &plugin, &pod, &at); n == 3 {
			c.named[pod] = naming{plugin, time.Duration(at)}
		} else if what, _ = strings.CutPrefix(lines.Text(), "did "); what != "" {
			c.counts[what]++
		}
		c.mu.Unlock()
	}
}

// stop ends the process: it ends when its standard input does.
func (c *child) stop(t testing.TB) {
	if c.stdin == nil {
		return
	}
	_ = c.stdin.Close()
	c.stdin = nil
	c.read.Wait()
	if err := c.command.Wait(); err != nil {
		t.Error("plugins: ", err)
	}
}

// monotonic is the monotonic clock of the kernel, which processes share.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// runPlugins runs the plugins of a role until standard input ends.
func runPlugins(role, directory string) {
	out := &output{}
	start, ok := roles[role]
	if !ok {
		panic("no role " + role)
	}
	stop := start(directory, out)
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
}

// output writes to the test.
type output struct{ mu sync.Mutex }

func (o *output) write(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

func (o *output) did(what string) { o.write("did %s", what) }
