package fence

import (
	"slices"
	"strconv"
	"strings"
)

// Victims are the containers of a pod that the OOM killer has killed, by the kernel log. On cgroup v1 the kernel
// notifies of an OOM kill at the fence of a pod in each cgroup below, so that the container runtime reports all its
// containers as OOMKilled. The zero value is a pod of which nothing is known.
type Victims struct {
	// tasks are the cgroups of the processes of the pod that were killed.
	tasks []string
	// fenced: a process was killed because a fence on the pod was exceeded.
	fenced bool
	// incomplete: the kernel has left out a record since the first one of the pod, or records were lost while the log was
	// read.
	incomplete bool
}

// Victims reads the whole kernel log, which has some thousand records; the result is what is left there. It does not
// wait. Fences of earlier runs of the agent count too: they are recognised by their limits.
func (f *Fencer) Victims(cgroup string) Victims {
	log := openLog(f.config.KernelLog)
	if log == nil {
		return Victims{}
	}
	defer log.close()
	r := victimReader{cgroup: cgroup}
	if log.each(func(record []byte) { r.add(string(record)) }) {
		r.victims.incomplete = true
	}
	return r.victims
}

// Spared reports whether a container with this ID was not OOM-killed, whatever the container runtime says: the fence of
// the pod was exceeded, and the kernel log names others. While the log is incomplete it is false, and so it is for each
// container of a pod that had no fence.
func (v Victims) Spared(container string) bool {
	return v.fenced && !v.incomplete &&
		!slices.ContainsFunc(v.tasks, func(task string) bool { return strings.Contains(task, container) })
}

// victimReader reads the records of the kernel log in their order. Those of one OOM kill follow each other: the usage
// and limit of the cgroup that exceeds it, a record with cgroups (oom-kill), and one that a process was killed. The
// kernel leaves out the first two when there are many kills.
type victimReader struct {
	cgroup  string
	victims Victims
	// limit is the last limit of memory, in bytes; pid is the process of the last oom-kill.
	limit int64
	pid   string
}

func (r *victimReader) add(record string) {
	if limit, ok := limitOf(record); ok {
		r.limit = limit
		return
	}
	v := &r.victims
	if kill, ok := parseKill(record); ok {
		r.pid = kill.pid
		if isBelow(kill.task, r.cgroup) {
			v.tasks = append(v.tasks, kill.task)
			v.fenced = v.fenced || strings.HasSuffix(kill.limited, r.cgroup) && ours(r.limit)
		}
		r.limit = 0
		return
	}
	if pid, ok := killedProcess(record); ok && pid != r.pid {
		v.incomplete = v.incomplete || len(v.tasks) > 0
	}
}

// limitOf reads "memory: usage 204800kB, limit 204800kB, failcnt 25".
func limitOf(record string) (bytes int64, ok bool) {
	_, text, _ := strings.Cut(record, ";memory: usage ")
	_, text, _ = strings.Cut(text, ", limit ")
	kilobytes, _, ok := strings.Cut(text, "kB")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(kilobytes, 10, 64)
	return n << 10, err == nil && n < unlimited>>10
}

// killedProcess reads "Memory cgroup out of memory: Killed process 1234 (name) …", which is also there without the
// first three words.
func killedProcess(record string) (pid string, ok bool) {
	_, text, found := strings.Cut(record, "ut of memory: Killed process ")
	pid, _, ok = strings.Cut(text, " ")
	return pid, found && ok
}
