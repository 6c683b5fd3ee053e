package crossing

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// observerSource is the source of the simplest program that sets a fence, to compare with.
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

// observe has the program set the fence of a pod, and waits until it observes. The program ends with the fence, or with
// stop.
func (n *node) observe(ctx context.Context, p *process) (stop func(), err error) {
	dir := filepath.Join(n.mounts["memory"], p.cgroup)
	cmd := exec.CommandContext(ctx, n.config.Observer, filepath.Join(n.files.Pods, n.files.Usage),
		strconv.FormatInt((n.config.Memory-n.config.Headroom)*mebibyte, 10), filepath.Join(dir, n.files.Usage),
		filepath.Join(dir, n.files.Limit))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return nil, fmt.Errorf("%s does not observe: %w", n.config.Observer, cmp.Or(lines.Err(), io.EOF))
	}
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		if lines.Scan() {
			at, _ := strconv.ParseInt(lines.Text(), 10, 64) // It is no fence if that is no number.
			p.fencedAt.Store(at)
		}
	}()
	return func() {
		_ = cmd.Process.Kill() // It may have ended.
		<-printed
		_ = cmd.Wait()
	}, nil
}
