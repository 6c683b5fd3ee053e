package cgroupkill

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

// Processes lists the processes in a cgroup and below, ordered by PID, without zombies. It does not set the field
// Container. With an error the list may be incomplete.
func (k *Killer) Processes(cgroup string) ([]escalation.Process, error) {
	if err := validateCgroup(cgroup); err != nil {
		return nil, err
	}
	members, err := k.tree.pids(cgroup)
	var found []escalation.Process
	for _, m := range members {
		p := escalation.Process{PID: m.pid, Cgroup: m.cgroup}
		if m.pid == 0 || k.proc.readInto(&p) {
			found = append(found, p)
		}
	}
	return found, err
}

// proc is the mount point of proc.
type proc string

// readInto sets the state and the name of a process. It returns false for a dead process. What cannot be read is left
// empty.
func (p proc) readInto(process *escalation.Process) bool {
	dir := filepath.Join(string(p), strconv.Itoa(process.PID))
	name, state, err := readStat(filepath.Join(dir, "stat"))
	process.Name, process.State = name, state
	switch {
	case hasEnded(err):
		return false
	case isDead(state):
		// The main thread has ended, other threads may run.
		process.State = p.anotherThread(dir)
		return !isDead(process.State)
	}
	return true
}

// anotherThread returns the state of a thread that has not ended, preferably of one in uninterruptible sleep; Z if all
// have ended.
func (p proc) anotherThread(dir string) byte {
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return 'Z'
	}
	found := byte('Z')
	for _, thread := range threads {
		_, state, err := readStat(filepath.Join(dir, "task", thread.Name(), "stat"))
		if err == nil && !isDead(state) && found != 'D' {
			found = state
		}
	}
	return found
}

func isDead(state byte) bool { return state == 'Z' || state == 'X' }

func hasEnded(err error) bool { return isRemoved(err) || errors.Is(err, unix.ESRCH) }

// readStat reads the beginning of proc_pid_stat(5): PID, (name), state. The name may contain anything.
func readStat(path string) (name string, state byte, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", 0, err
	}
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open || end+2 >= len(data) {
		return "", 0, nil
	}
	return string(data[open+1 : end]), data[end+2], nil
}
