package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pollInterval is the time between two checks whether a process has ended.
const pollInterval = 50 * time.Millisecond

// killWait is how long a process may take to end after SIGKILL.
const killWait = 10 * time.Second

// Command describes a process that outlives the program that starts it.
type Command struct {
	// Name is the base name of its log and its PID file.
	Name string
	Path string
	Args []string
	// Env is added to this program's environment.
	Env []string
}

// Processes starts and finds the long-running processes of one cluster. Logs are appended to LogDir/NAME.log.
// RunDir/NAME.pid has the PID and the start time, so that another process with the same PID is never mistaken for it.
type Processes struct {
	LogDir string
	RunDir string
}

// Process is one started process. The zero value is one that does not run.
type Process struct {
	PID int
	// Started is in clock ticks since boot, as the kernel reports it.
	Started uint64
}

// Start starts cmd in a session of its own and writes its PID file.
func (p Processes) Start(cmd Command) (Process, error) {
	log, err := os.OpenFile(p.LogFile(cmd.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Process{}, fmt.Errorf("open log of %s: %w", cmd.Name, err)
	}
	defer log.Close()
	child := exec.Command(cmd.Path, cmd.Args...)
	child.Env = append(os.Environ(), cmd.Env...)
	child.Stdout, child.Stderr = log, log
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return Process{}, fmt.Errorf("start %s: %w", cmd.Name, err)
	}
	proc := FindProcess(child.Process.Pid)
	// Reaps the child. How it ended is in its log.
	go func() { _ = child.Wait() }()
	record := fmt.Sprintf("%d %d\n", proc.PID, proc.Started)
	if err := os.WriteFile(p.pidFile(cmd.Name), []byte(record), 0o644); err != nil {
		return proc, fmt.Errorf("write pid file of %s: %w", cmd.Name, err)
	}
	return proc, nil
}

// Find returns the process of the PID file of name. The result is the zero value if there is no such file.
func (p Processes) Find(name string) (Process, error) {
	data, err := os.ReadFile(p.pidFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Process{}, nil
	}
	if err != nil {
		return Process{}, fmt.Errorf("read pid file of %s: %w", name, err)
	}
	var proc Process
	if _, err := fmt.Sscanf(string(data), "%d %d", &proc.PID, &proc.Started); err != nil {
		return Process{}, fmt.Errorf("read pid file of %s: %w", name, err)
	}
	return proc, nil
}

// Stop stops the process of the PID file of name by SIGTERM (unless grace is zero), after grace by SIGKILL, and removes
// the file. If there is no process, that is no error.
func (p Processes) Stop(ctx context.Context, name string, grace time.Duration) error {
	proc, err := p.Find(name)
	if err != nil {
		return err
	}
	if err := proc.Stop(ctx, grace); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	if err := os.Remove(p.pidFile(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pid file of %s: %w", name, err)
	}
	return nil
}

// LogFile is the path of the log of the process called name.
func (p Processes) LogFile(name string) string { return filepath.Join(p.LogDir, name+".log") }

func (p Processes) pidFile(name string) string { return filepath.Join(p.RunDir, name+".pid") }

// FindProcess returns the process that has that PID now.
func FindProcess(pid int) Process {
	// A process that has ended has no start time, and is not alive.
	_, _, started, _ := readStat(pid)
	return Process{PID: pid, Started: started}
}

// Alive returns whether this very process still runs. A zombie does not run, unless other threads of it do, with which
// its files and ports are open.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	state, threads, started, err := readStat(p.PID)
	return err == nil && (state != "Z" || threads > 1) && started == p.Started
}

// Runs returns whether the process was started from the file that is at path now, and not from an earlier file of the
// same name.
func (p Process) Runs(path string) bool {
	running, err := os.Stat(fmt.Sprintf("/proc/%d/exe", p.PID))
	if err != nil {
		return false
	}
	file, err := os.Stat(path)
	return err == nil && os.SameFile(running, file)
}

// Kill kills the process by SIGKILL and waits until it has ended.
func (p Process) Kill(ctx context.Context) error {
	if !p.Alive() {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !p.gone(ctx, killWait) {
		return fmt.Errorf("process %d is still there %v after SIGKILL", p.PID, killWait)
	}
	return nil
}

// Stop sends SIGTERM, waits up to grace, then kills. Without grace it kills at
// once.
func (p Process) Stop(ctx context.Context, grace time.Duration) error {
	if grace <= 0 {
		return p.Kill(ctx)
	}
	if !p.Alive() {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if p.gone(ctx, grace) {
		return nil
	}
	return p.Kill(ctx)
}

func (p Process) signal(sig syscall.Signal) error {
	err := syscall.Kill(p.PID, sig)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, p.PID, err)
	}
	return nil
}

func (p Process) gone(ctx context.Context, limit time.Duration) bool {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(context.Context) (bool, error) {
		return !p.Alive(), nil
	})
	return err == nil
}

// readStat returns the state letter, the number of threads and the start time of a process.
func readStat(pid int) (state string, threads int, started uint64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, 0, err
	}
	return parseStat(string(data))
}

// parseStat reads fields 3, 20 and 22 of /proc/PID/stat. The second field, the
// command in parentheses, may itself hold spaces and parentheses.
func parseStat(line string) (state string, threads int, started uint64, err error) {
	_, rest, found := strings.Cut(line, "(")
	end := strings.LastIndex(rest, ")")
	if !found || end < 0 {
		return "", 0, 0, fmt.Errorf("unexpected stat line %q", line)
	}
	fields := strings.Fields(rest[end+1:])
	if len(fields) < 20 {
		return "", 0, 0, fmt.Errorf("short stat line %q", line)
	}
	if threads, err = strconv.Atoi(fields[17]); err != nil {
		return "", 0, 0, fmt.Errorf("unexpected stat line %q: %w", line, err)
	}
	started, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0], threads, started, err
}
