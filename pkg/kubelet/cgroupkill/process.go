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

// Processes lists the processes in a cgroup and below, by PID; those that are dead and only wait for their parent are
// left out. Field Container is not set. With an error the list may be incomplete.
func (k *Killer) Processes(cgroup string) ([]escalation.Process, error) {
	if err := check(cgroup); err != nil {
		return nil, err
	}
	members, err := k.tree.pids(cgroup)
	var found []escalation.Process
	for _, m := range members {
		p := escalation.Process{PID: m.pid, Cgroup: m.cgroup}
		if m.pid == 0 || k.proc.look(&p) {
			found = append(found, p)
		}
	}
	return found, err
}

// proc is where proc is mounted.
type proc string

// look fills in the state and the name of a process; false if it is dead. What cannot be read is left empty.
func (p proc) look(process *escalation.Process) bool {
	dir := filepath.Join(string(p), strconv.Itoa(process.PID))
	name, state, err := readStat(filepath.Join(dir, "stat"))
	process.Name, process.State = name, state
	switch {
	case gone(err):
		return false
	case dead(state):
		// The first thread has ended, others may be alive.
		process.State = p.anotherThread(dir)
		return !dead(process.State)
	}
	return true
}

// anotherThread returns the state of a thread that is alive, one in uninterruptible sleep if there is one; Z if there
// is none.
func (p proc) anotherThread(dir string) byte {
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return 'Z'
	}
	alive := byte('Z')
	for _, thread := range threads {
		_, state, err := readStat(filepath.Join(dir, "task", thread.Name(), "stat"))
		if err == nil && !dead(state) && alive != 'D' {
			alive = state
		}
	}
	return alive
}

func dead(state byte) bool { return state == 'Z' || state == 'X' }

func gone(err error) bool { return vanished(err) || errors.Is(err, unix.ESRCH) }

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
