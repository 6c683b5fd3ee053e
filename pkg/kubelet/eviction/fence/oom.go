package fence

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// OOM is what the kernel log says about OOM kills of a pod since its fence was set.
type OOM struct {
	// Inside: the pod's own limit, or that of a container, was exceeded, and a process of the pod was killed.
	Inside bool
	// Outside: a process of the pod was killed because a cgroup above the pod, or the node, was out of memory.
	Outside bool
}

// oomLog reads the kernel log, from its oldest record or, after skip, from the next one on; nil where it cannot be
// read. It does not wait, and costs an open file.
type oomLog struct {
	fd  int
	buf [8192]byte
}

func openLog(path string) *oomLog {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &oomLog{fd: fd}
}

// skip leaves out the records up to now.
func (l *oomLog) skip() error {
	if l == nil {
		return nil
	}
	_, err := unix.Seek(l.fd, 0, unix.SEEK_END)
	return err
}

func (l *oomLog) close() {
	if l != nil {
		_ = unix.Close(l.fd)
	}
}

// OOMKilled reports whether the OOM killer has killed a process of the pod since the fence was set, because the limit
// of the pod or of one of its containers was exceeded. The kernel log says whose limit it was, but the kernel leaves
// out records when there are many (oom_kill_process); then the counters of the pod's cgroups are enough. They are lost
// with the cgroup of a container, so that Check reads them too. After Restore or Close the result stays what it was.
func (p *Fence) OOMKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readOOM()
	return p.oom.Inside || p.killed && !p.oom.Outside
}

// readOOM reads the kernel log and the counters. The caller holds the lock.
func (p *Fence) readOOM() {
	if p.lost || p.closed {
		return
	}
	if p.log != nil {
		p.log.read(p.cgroup, &p.oom)
	}
	p.killed = p.killed || p.oomKills() > p.kills
}

// read reads the records that have come since the last call.
func (l *oomLog) read(cgroup string, found *OOM) {
	l.each(func(record []byte) {
		oom := oomOf(record, cgroup)
		found.Inside, found.Outside = found.Inside || oom.Inside, found.Outside || oom.Outside
	})
}

// each calls add for the records that have come since the last call. Each read returns one. It reports whether records
// were lost: overwritten before they were read, or longer than the buffer.
func (l *oomLog) each(add func(record []byte)) (lost bool) {
	for {
		n, err := unix.Read(l.fd, l.buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINVAL):
			lost = true
			continue
		case err != nil || n <= 0:
			return lost
		}
		add(l.buf[:n])
	}
}

// oomOf reads a record of the kernel log. That of an OOM kill is, since Linux 4.19,
// "oom-kill:constraint=…,…,oom_memcg=<whose limit>,task_memcg=<cgroup of the process>,task=…,pid=…,uid=…", with
// "global_oom" in place of oom_memcg when the node is out of memory. The paths are those from the root of the
// hierarchy, which a mount in a container hides.
func oomOf(record []byte, cgroup string) OOM {
	kill, found := parseKill(string(record))
	if !found || !isBelow(kill.task, cgroup) {
		return OOM{}
	}
	inside := isBelow(kill.limited, cgroup)
	return OOM{Inside: inside, Outside: !inside}
}

// oomKill is the record of an OOM kill: the cgroup whose limit was exceeded, empty for the node, that of the process,
// and its ID.
type oomKill struct{ limited, task, pid string }

// parseKill does not take the name of a process, which may have any characters, for fields.
func parseKill(record string) (k oomKill, found bool) {
	_, text, _ := strings.Cut(record, ";")
	text, found = strings.CutPrefix(text, "oom-kill:")
	line, _, _ := strings.Cut(text, "\n")
	cgroups, process, _ := strings.Cut(line, ",task=")
	for field := range strings.SplitSeq(cgroups, ",") {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "oom_memcg":
			k.limited = value
		case "task_memcg":
			k.task = value
		}
	}
	if i := strings.LastIndex(process, ",pid="); i >= 0 {
		k.pid, _, _ = strings.Cut(process[i+len(",pid="):], ",")
	}
	return k, found
}

// isBelow reports whether a cgroup is that of the pod, or below.
func isBelow(path, pod string) bool { return strings.Contains(path+"/", pod+"/") }
