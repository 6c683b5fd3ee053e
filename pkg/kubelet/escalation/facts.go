package escalation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Process is a process of a pod.
type Process struct {
	PID int
	// State is the letter in /proc/<pid>/stat: D is uninterruptible sleep, in which no signal has an effect; 0 if it
	// cannot be read.
	State byte
	// Name is the command's, at most 15 bytes.
	Name string
	// Cgroup is the path of its cgroup below that of the pod; empty in that of the pod itself.
	Cgroup string
	// Container is true for a process in the cgroup of one of the pod's containers, as opposed to its sandbox and the
	// runtime's helpers.
	Container bool
}

func (p Process) String() string {
	state := "?"
	if p.State != 0 {
		state = string(rune(p.State))
	}
	return fmt.Sprintf("%d (%s) %s", p.PID, p.Name, state)
}

// Facts are what is there of an overdue pod.
type Facts struct {
	// Silent is true when the runtime does not answer; then Running is what was known before.
	Silent bool
	// Running are the names of the containers that run, as the runtime says.
	Running []string
	// Processes are those in the pod's cgroup, by PID.
	Processes []Process
	// NoCgroup says why Processes is not known, nil if it is.
	NoCgroup error
	// OwnKernel is true when the specification says that the pod has a kernel of its own: what runs in its cgroup is then
	// the machine that the runtime runs it in.
	OwnKernel bool
}

// mayKillCgroup is true when there are processes of containers in the pod's cgroup. Of a pod in a virtual machine there
// are none: its processes are in the machine, and the machine's own belong to the sandbox. That holds also where the
// specification does not tell.
func (f Facts) mayKillCgroup() bool {
	return !f.OwnKernel && slices.ContainsFunc(f.Processes, func(p Process) bool { return p.Container })
}

// Stuck are the processes in uninterruptible sleep.
func (f Facts) Stuck() []Process {
	var stuck []Process
	for _, p := range f.Processes {
		if p.State == 'D' {
			stuck = append(stuck, p)
		}
	}
	return stuck
}

// mostNamed bounds the processes that a message names.
const mostNamed = 5

// Summary says in words what is left of the pod.
func (f Facts) Summary() string {
	parts := []string{"all containers have stopped"}
	switch {
	case f.Silent:
		parts[0] = "the runtime does not answer"
	case len(f.Running) > 0:
		parts[0] = "running: " + strings.Join(f.Running, ", ")
	}
	switch {
	case f.NoCgroup != nil:
		parts = append(parts, fmt.Sprintf("processes cannot be listed: %v", f.NoCgroup))
	case len(f.Processes) == 0:
		parts = append(parts, "no process is left in the pod's cgroup")
	default:
		noun := "processes"
		if len(f.Processes) == 1 {
			noun = "process"
		}
		parts = append(parts,
			fmt.Sprintf("%d %s in the pod's cgroup, %d in uninterruptible sleep", len(f.Processes), noun, len(f.Stuck())))
		parts = append(parts, named(f.Processes))
	}
	return strings.Join(parts, "; ")
}

// named lists processes, those in uninterruptible sleep first.
func named(processes []Process) string {
	ordered := slices.Clone(processes)
	slices.SortFunc(ordered, func(a, b Process) int {
		if (a.State == 'D') != (b.State == 'D') {
			if a.State == 'D' {
				return -1
			}
			return 1
		}
		return a.PID - b.PID
	})
	var names []string
	for i, p := range ordered {
		if i == mostNamed {
			names = append(names, "…")
			break
		}
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// Overdue is a pod that the runtime has not stopped in time.
type Overdue struct {
	// Since is when its grace period was over.
	Since time.Time
	// Rung is the highest that was climbed; Report means that everything was tried, and that the pod is stuck.
	Rung Rung
	// Seen is when Facts were looked at last.
	Seen  time.Time
	Facts Facts
}
