//go:build linux

// Command guest is the first process of a machine of package numa, and the processes of the pods there. Each line that
// it writes to the second serial port is a numa.Line.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/test/numa"
)

func main() {
	if os.Getpid() != 1 {
		if err := runProcess(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := run(); err != nil {
		fmt.Println("guest:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // If that fails, the kernel panics when this process ends.
}

// report writes results to the second serial port.
type report struct{ encoder *json.Encoder }

func (r report) send(line numa.Line) error {
	if err := r.encoder.Encode(line); err != nil {
		return fmt.Errorf("write a result: %w", err)
	}
	return nil
}

// run mounts the file systems, and writes the files of the kernel and what plugins answer in each situation.
func run() error {
	if err := mountAll(); err != nil {
		return err
	}
	port, err := os.OpenFile("/dev/ttyS1", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the serial port: %w", err)
	}
	defer port.Close()
	out := report{json.NewEncoder(port)}
	m, err := newMachine(out)
	if err == nil {
		err = m.all()
	}
	if err != nil {
		return out.send(numa.Line{Error: err.Error()})
	}
	return out.send(numa.Line{Done: true})
}

// mountAll mounts the file systems of the kernel, and lets the cgroups below the root and below that of all pods have
// all controllers.
func mountAll() error {
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"cgroup2", cgroupRoot},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return fmt.Errorf("make a mount point: %w", err)
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.kind, err)
		}
	}
	for _, dir := range []string{cgroupRoot, podsCgroup} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a cgroup: %w", err)
		}
		if err := write(dir+"/cgroup.subtree_control", "+memory +cpu"); err != nil {
			return err
		}
	}
	return nil
}

func write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// period is the time between two rounds of rules.
const period = time.Second
