package race

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelLog reads the records of the kernel log that are written after it was opened.
type kernelLog struct {
	fd int
}

func openKernelLog() (*kernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the kernel log: %w", err)
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		return nil, errors.Join(fmt.Errorf("open the kernel log: %w", err), unix.Close(fd))
	}
	return &kernelLog{fd: fd}, nil
}

func (l *kernelLog) close() error { return unix.Close(l.fd) }

// records returns the records since the last call.
func (l *kernelLog) records() (list []string, err error) {
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

// oomKill is what the kernel logs about a call of the OOM killer. The paths are those of cgroups; limited is empty when
// the node was out of memory.
type oomKill struct {
	limited, task string
}

// parseOOM returns the OOM kill of a record. See dump_oom_victim of the kernel: "oom-kill:constraint=…,nodemask=…,
// cpuset=…,mems_allowed=…,oom_memcg=…,task_memcg=…,task=…,pid=…,uid=…", or global_oom for oom_memcg.
func parseOOM(record string) (k oomKill, ok bool) {
	_, text, ok := strings.Cut(record, ";oom-kill:")
	if !ok {
		return k, false
	}
	text, _, _ = strings.Cut(text, "\n")
	for field := range strings.SplitSeq(text, ",") {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "oom_memcg":
			k.limited = value
		case "task_memcg":
			k.task = value
		}
	}
	return k, true
}
