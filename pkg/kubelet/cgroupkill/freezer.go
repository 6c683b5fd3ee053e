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
	// freezeTimeout is how long processes get to freeze; what cannot be frozen by then is killed all the same.
	freezeTimeout = 100 * time.Millisecond
	freezePeriod  = time.Millisecond
)

// freezer is how the processes of a cgroup are stopped. The zero value does nothing.
type freezer struct {
	mount string
	// file is written to with on and off.
	file, on, off string
	// stateFile has the line frozen once everything is.
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

// freeze asks the kernel to stop the processes in the cgroup and below, and waits for a short while until they are. It
// asks again each time, since on v1 a process that was being forked can be missed. It must be followed by thaw.
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

// thaw lets the processes in the cgroup and below run, also where it was not this package that froze them: on v1 a
// frozen process does not die of a signal.
func (f freezer) thaw(cgroup string) error {
	if f.mount == "" {
		return nil
	}
	var errs []error
	err := filepath.WalkDir(filepath.Join(f.mount, cgroup), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return ignoreVanished(err)
		}
		errs = append(errs, ignoreVanished(writeFile(filepath.Join(path, f.file), f.off)))
		return nil
	})
	return errors.Join(append(errs, err)...)
}

func ignoreVanished(err error) error {
	if vanished(err) {
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
