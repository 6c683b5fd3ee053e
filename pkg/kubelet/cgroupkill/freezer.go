package cgroupkill

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// freezeTimeout is how long freezing may take. Processes that are not frozen by then are killed nevertheless.
	freezeTimeout = 100 * time.Millisecond
	freezePeriod  = time.Millisecond
)

// freezer is the interface of the kernel that freezes a cgroup. The zero value does nothing.
type freezer struct {
	mount string
	// on and off are written to file.
	file, on, off string
	// stateFile has the line given by frozen when all processes are frozen.
	stateFile, frozen string
}

func freezerV1(mount string) freezer {
	return freezer{
		mount: mount, file: "freezer.state", on: "FROZEN", off: "THAWED", stateFile: "freezer.state", frozen: "FROZEN",
	}
}

func freezerV2(mount string) freezer {
	return freezer{mount: mount, file: "cgroup.freeze", on: "1", off: "0", stateFile: "cgroup.events", frozen: "frozen 1"}
}

// freeze freezes the processes in the cgroup and below, and waits for at most freezeTimeout. It repeats the request for
// each check, because v1 may miss a process that was being forked. The caller has to call thaw afterwards.
func (f freezer) freeze(cgroup string) {
	if f.mount == "" {
		return
	}
	dir := filepath.Join(f.mount, cgroup)
	for deadline := time.Now().Add(freezeTimeout); time.Now().Before(deadline); <-time.After(freezePeriod) {
		if writeFile(filepath.Join(dir, f.file), f.on) != nil {
			return
		}
		state, err := os.ReadFile(filepath.Join(dir, f.stateFile))
		if err != nil || containsLine(string(state), f.frozen) {
			return
		}
	}
}

// thaw thaws the cgroup and those below, also if another program froze them: on v1 a signal does not end a frozen
// process.
func (f freezer) thaw(cgroup string) error {
	if f.mount == "" {
		return nil
	}
	var errs []error
	err := filepath.WalkDir(filepath.Join(f.mount, cgroup), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return ignoreRemoved(err)
		}
		errs = append(errs, ignoreRemoved(writeFile(filepath.Join(path, f.file), f.off)))
		return nil
	})
	return errors.Join(append(errs, err)...)
}

func ignoreRemoved(err error) error {
	if isRemoved(err) {
		return nil
	}
	return err
}

func containsLine(text, line string) bool {
	for l := range strings.Lines(text) {
		if strings.TrimSpace(l) == line {
			return true
		}
	}
	return false
}
