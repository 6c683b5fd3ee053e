package crossing

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// observerSource is the source of a program that sees crossings, and of the simplest one that sets fences, to compare
// with.
//
//go:embed observer.c.txt
var observerSource []byte

// BuildObserver compiles the program for Config.Observer. It needs a C compiler.
func BuildObserver(ctx context.Context, program string) error {
	source := program + ".c"
	if err := os.WriteFile(source, observerSource, 0o644); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cc", "-O2", "-static", "-o", program, source).CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", filepath.Base(source), err, out)
	}
	return nil
}

// observer is a process of the program.
type observer struct {
	cmd *exec.Cmd
	// at receives the monotonic time that it prints, in nanoseconds, and is closed when it has ended.
	at chan int64
}

// observe starts the program with more arguments, and waits until it observes usage of all pods above a threshold in
// bytes.
func (n *node) observe(ctx context.Context, threshold int64, more ...string) (*observer, error) {
	args := []string{filepath.Join(n.files.Pods, n.files.Usage), strconv.FormatInt(threshold, 10)}
	o := &observer{cmd: exec.CommandContext(ctx, n.config.Observer, append(args, more...)...), at: make(chan int64, 1)}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	o.cmd.Stderr = os.Stderr
	if err := o.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return nil, errors.Join(fmt.Errorf("%s does not observe: %w", n.config.Observer, cmp.Or(lines.Err(), io.EOF)),
			o.cmd.Wait())
	}
	go func() {
		defer close(o.at)
		if lines.Scan() {
			if at, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				o.at <- at
			}
		}
	}()
	return o, nil
}

// fence has the program set the fence of a pod.
func (n *node) fence(ctx context.Context, p *process, threshold int64) (*observer, error) {
	dir := filepath.Join(n.mounts["memory"], p.cgroup)
	return n.observe(ctx, threshold, filepath.Join(dir, n.files.Usage), filepath.Join(dir, n.files.Limit))
}

// stop ends the process. It returns the time that the process prints then, and false if it prints none.
func (o *observer) stop() (at int64, ok bool) {
	_ = o.cmd.Process.Signal(unix.SIGTERM) // It may have ended.
	at, ok = <-o.at
	_ = o.cmd.Wait()
	return at, ok
}
