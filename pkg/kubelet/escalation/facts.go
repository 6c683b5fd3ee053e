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
	// State is the letter in /proc/<pid>/stat: D is uninterruptible sleep, in which signals have no effect; 0 if it cannot
	// be read.
	State byte
	// Name is the name of the command (comm), at most 15 bytes.
	Name string
	// Cgroup is the path of its cgroup relative to that of the pod; empty for the pod's cgroup itself.
	Cgroup string
	// Container is true for a process in the cgroup of one of the pod's containers, false for one of the sandbox and of
	// the runtime's shims.
	Container bool
}

// String returns PID, name and state, with ? for an unknown state.
func (p Process) String() string {
	state := "?"
	if p.State != 0 {
		state = string(rune(p.State))
	}
	return fmt.Sprintf("%d (%s) %s", p.PID, p.Name, state)
}

// Facts are the containers and processes that remain of an overdue pod.
type Facts struct {
	// Silent is true if the runtime does not answer; Running is then its last answer.
	Silent bool
	// Running are the names of the running containers according to the runtime.
	Running []string
	// Processes are the processes in the pod's cgroup, in the order of their PIDs.
	Processes []Process
	// ProcessesErr is the error of listing Processes.
	ProcessesErr error
	// OwnKernel is true if the pod has a kernel of its own according to its specification: the processes in its cgroup
	// are then those of the virtual machine.
	OwnKernel bool
}

// mayKillCgroup returns whether there are processes of containers in the pod's cgroup. A pod in a virtual machine has
// none, also if its specification does not mention the machine: the processes of its containers are in the machine, and
// the machine's own processes belong to the sandbox.
func (f Facts) mayKillCgroup() bool {
	return !f.OwnKernel && slices.ContainsFunc(f.Processes, func(p Process) bool { return p.Container })
}

// Stuck returns the processes in uninterruptible sleep.
func (f Facts) Stuck() []Process {
	var stuck []Process
	for _, p := range f.Processes {
		if p.State == 'D' {
			stuck = append(stuck, p)
		}
	}
	return stuck
}

// maxListed is the maximum number of processes that a message lists.
const maxListed = 5

// Summary describes the remaining containers and processes, for events, logs and /debug/pods.
func (f Facts) Summary() string {
	parts := []string{"all containers have stopped"}
	switch {
	case f.Silent:
		parts[0] = "the runtime does not answer"
	case len(f.Running) > 0:
		parts[0] = "running: " + strings.Join(f.Running, ", ")
	}
	switch {
	case f.ProcessesErr != nil:
		parts = append(parts, fmt.Sprintf("processes cannot be listed: %v", f.ProcessesErr))
	case len(f.Processes) == 0:
		parts = append(parts, "no process is left in the pod's cgroup")
	default:
		noun := "processes"
		if len(f.Processes) == 1 {
			noun = "process"
		}
		parts = append(parts,
			fmt.Sprintf("%d %s in the pod's cgroup, %d in uninterruptible sleep", len(f.Processes), noun, len(f.Stuck())))
		parts = append(parts, listed(f.Processes))
	}
	return strings.Join(parts, "; ")
}

// listed lists processes, those in uninterruptible sleep first, each group in the order of the PIDs.
func listed(processes []Process) string {
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
		if i == maxListed {
			names = append(names, "…")
			break
		}
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// Overdue is a pod that the runtime has not stopped in time.
type Overdue struct {
	// Since is the end of its grace period.
	Since time.Time
	// Step is the last step that was taken; Report means that all steps were taken, and that the pod is stuck.
	Step Step
	// Seen is when Facts were observed.
	Seen  time.Time
	Facts Facts
}
