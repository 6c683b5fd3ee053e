package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// heartbeat is the time between two progress lines of a long build.
const heartbeat = 30 * time.Second

// Builder builds parts of the repository at Root into Out.
type Builder struct {
	Root string
	Out  string
	// Built has nothing built or installed: all is in Out already, on a machine without the Go tool.
	Built bool
	// Log receives progress, one line per step.
	Log io.Writer
}

// Path returns the path of the binary of a part.
func (b Builder) Path(name string) string { return filepath.Join(b.Out, name) }

// Build builds what is missing or out of date among parts. It first logs how long that takes. Two builds at the same
// time wait for each other.
func (b Builder) Build(ctx context.Context, parts []Part) error {
	if b.Built {
		return b.check(parts)
	}
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	missing, estimate := b.missing(parts)
	if missing > 0 {
		fmt.Fprintf(b.Log, "Building %d of %d programs: about %s on two cores if the Go build cache is empty, less "+
			"otherwise.\n",
			missing, len(parts), roughly(estimate))
	}
	for i, part := range parts {
		if err := b.buildPart(ctx, part, fmt.Sprintf("[%d/%d]", i+1, len(parts))); err != nil {
			return err
		}
	}
	return nil
}

// check is nil if all parts are there.
func (b Builder) check(parts []Part) error {
	for _, part := range parts {
		if _, err := os.Stat(b.Path(part.Name)); err != nil {
			return fmt.Errorf("a part was not built: %w", err)
		}
	}
	return nil
}

func (b Builder) missing(parts []Part) (count int, estimate time.Duration) {
	for _, part := range parts {
		_, err := os.Stat(b.Path(part.Name))
		if err != nil || !part.Own && !b.upToDate(part) {
			count++
			estimate += part.Cold
		}
	}
	return count, estimate
}

func (b Builder) buildPart(ctx context.Context, part Part, step string) error {
	if !part.Own && b.upToDate(part) {
		return nil
	}
	_, err := os.Stat(b.Path(part.Name))
	quiet := part.Own && err == nil
	if !quiet {
		fmt.Fprintf(b.Log, "  %s %s (up to %s)\n", step, part.Name, roughly(part.Cold))
	}
	start := time.Now()
	stop := b.beat(part.Name, start)
	out, err := b.command(ctx, part).CombinedOutput()
	stop()
	if err != nil {
		return fmt.Errorf("build %s: %w\n%s", part.Name, err, out)
	}
	if took := time.Since(start); !quiet || took > 5*time.Second {
		fmt.Fprintf(b.Log, "  %s %s built in %s\n", step, part.Name, took.Round(time.Second))
	}
	if part.Own {
		return nil
	}
	if err := os.WriteFile(b.stampFile(part), []byte(b.stamp(part)), 0o644); err != nil {
		return fmt.Errorf("write stamp of %s: %w", part.Name, err)
	}
	return nil
}

// command returns the Go tool's command for part. Paths are not trimmed, so that the build cache is shared with plain
// calls of the Go tool.
func (b Builder) command(ctx context.Context, part Part) *exec.Cmd {
	args := []string{"build"}
	if part.Test {
		args = []string{"test", "-c"}
	}
	args = append(args, "-buildvcs=false", "-ldflags=-s -w"+part.LDFlags, "-o", b.Path(part.Name))
	if part.Tags != "" {
		args = append(args, "-tags="+part.Tags)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, part.Package)...)
	cmd.Dir = filepath.Join(b.Root, part.Module)
	cgo := "CGO_ENABLED=0"
	if part.Cgo {
		cgo = "CGO_ENABLED=1"
	}
	cmd.Env = append(os.Environ(), cgo, "GOFLAGS="+ownFlags(), "GOWORK=off")
	return cmd
}

// ownFlags returns the caller's GOFLAGS without a -mod or -modfile for another module.
func ownFlags() string {
	var kept []string
	for _, flag := range strings.Fields(os.Getenv("GOFLAGS")) {
		if !strings.HasPrefix(flag, "-mod") {
			kept = append(kept, flag)
		}
	}
	return strings.Join(kept, " ")
}

func (b Builder) upToDate(part Part) bool {
	if _, err := os.Stat(b.Path(part.Name)); err != nil {
		return false
	}
	data, err := os.ReadFile(b.stampFile(part))
	return err == nil && string(data) == b.stamp(part)
}

func (b Builder) stampFile(part Part) string { return filepath.Join(b.Out, "."+part.Name+".stamp") }

// stamp returns a text of everything from which a part that is not ours is built: its module's files and the build
// flags.
func (b Builder) stamp(part Part) string {
	hash := sha256.New()
	fmt.Fprintln(hash, part.Package, part.Tags, part.LDFlags, part.Cgo, part.Test)
	files, _ := filepath.Glob(filepath.Join(b.Root, part.Module, "*"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			fmt.Fprintf(hash, "%s %x\n", filepath.Base(file), sha256.Sum256(data))
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// beat logs from time to time that a build goes on, until stop is called.
func (b Builder) beat(name string, start time.Time) (stop func()) {
	ticker := time.NewTicker(heartbeat)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				fmt.Fprintf(b.Log, "        still building %s, %s so far\n", name, time.Since(start).Round(time.Second))
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
	}
}

func (b Builder) lock() (unlock func(), err error) {
	if err := os.MkdirAll(b.Out, 0o755); err != nil {
		return nil, fmt.Errorf("make output folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(b.Out, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open build lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("take build lock: %w", err)
	}
	return func() { file.Close() }, nil
}

// roughly rounds a duration to the precision of an estimate.
func roughly(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", max(int(d.Seconds()), 1))
	}
	return fmt.Sprintf("%d min", int((d + 30*time.Second).Minutes()))
}
