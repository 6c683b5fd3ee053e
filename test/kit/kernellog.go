package kit

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// KernelLog reads the records of the kernel log that are written after it was opened.
type KernelLog struct {
	fd int
}

// OpenKernelLog opens the log of this machine's kernel. The caller closes it.
func OpenKernelLog() (*KernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the kernel log: %w", err)
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		return nil, errors.Join(fmt.Errorf("open the kernel log: %w", err), unix.Close(fd))
	}
	return &KernelLog{fd: fd}, nil
}

// Close ends reading.
func (l *KernelLog) Close() error { return unix.Close(l.fd) }

// Records returns the records since the last call. It does not wait for one.
func (l *KernelLog) Records() (list []string, err error) {
	buf := make([]byte, 8192)
	for {
		n, err := unix.Read(l.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return list, nil
		case errors.Is(err, unix.EPIPE):
			return list, errors.New("records of the kernel log were overwritten before they were read")
		case err != nil:
			return list, fmt.Errorf("read the kernel log: %w", err)
		default:
			list = append(list, string(buf[:n]))
		}
	}
}

// OOMKill is what the kernel logs about a call of the OOM killer. The paths are those of cgroups, from the root of the
// hierarchy.
type OOMKill struct {
	// Limited is the cgroup whose limit was exceeded; empty if the node was out of memory.
	Limited string
	// Task is the cgroup of the process that was killed.
	Task string
}

// ParseOOMKill returns the OOM kill of a record, if it is one. See dump_oom_victim of the kernel:
// "oom-kill:constraint=…,nodemask=…,cpuset=…,mems_allowed=…,oom_memcg=…,task_memcg=…,task=…,pid=…,uid=…", or global_oom
// for oom_memcg. The name of a process, behind "task=", may have any characters.
func ParseOOMKill(record string) (k OOMKill, ok bool) {
	_, text, _ := strings.Cut(record, ";")
	text, ok = strings.CutPrefix(text, "oom-kill:")
	text, _, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, ",task=")
	for field := range strings.SplitSeq(text, ",") {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "oom_memcg":
			k.Limited = value
		case "task_memcg":
			k.Task = value
		}
	}
	return k, ok
}
