// Command fakesystemd replaces systemd-run, systemctl, journalctl and sudo on machines without systemd, as far as the
// upstream node suite uses them: it starts a kubelet as a unit, and stops, kills and restarts it. The name by which it
// is called selects the program. The directory $FAKESYSTEMD_UNITS has the units.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// stopGrace is how long a unit may take to stop after SIGTERM.
const stopGrace = 30 * time.Second

// unit is a service that was started by systemd-run.
type unit struct {
	Name string       `json:"name"`
	Dir  string       `json:"dir"`
	Log  string       `json:"log"`
	Args []string     `json:"args"`
	Proc host.Process `json:"process"`
}

func main() {
	var err error
	switch name := filepath.Base(os.Args[0]); name {
	case "systemd-run":
		err = systemdRun(os.Args[1:])
	case "systemctl":
		err = systemctl(os.Args[1:])
	case "journalctl":
	case "sudo":
		err = sudo(os.Args[1:])
	default:
		err = fmt.Errorf("called by the unknown name %q", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakesystemd:", err)
		os.Exit(1)
	}
}

func sudo(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, args, os.Environ())
}

func systemdRun(args []string) error {
	u := unit{Name: "run", Log: os.DevNull}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option := args[0]
		args = args[1:]
		switch {
		case option == "--version":
			fmt.Println("systemd 252 (stand-in)")
			return nil
		case option == "-p" && len(args) > 0:
			// The log is opened to append in any case.
			for _, how := range []string{"StandardError=file:", "StandardError=append:"} {
				if file, found := strings.CutPrefix(args[0], how); found {
					u.Log = file
				}
			}
			args = args[1:]
		case strings.HasPrefix(option, "--unit="):
			u.Name = strings.TrimSuffix(strings.TrimPrefix(option, "--unit="), ".service")
		}
	}
	if len(args) == 0 {
		return errors.New("nothing to run")
	}
	u.Args = args
	var err error
	if u.Dir, err = os.Getwd(); err != nil {
		return err
	}
	return u.start()
}

// systemctl implements list-units, start, stop, kill and restart. Anything else succeeds and does nothing.
func systemctl(args []string) error {
	if len(args) == 0 {
		return errors.New("nothing to do")
	}
	pattern := "*"
	for _, arg := range args[1:] {
		if !strings.HasPrefix(arg, "-") {
			pattern = strings.TrimSuffix(arg, ".service")
		}
	}
	units, err := find(pattern)
	if err != nil {
		return err
	}
	if args[0] == "list-units" {
		list(units, slices.Contains(args, "--state=running"))
		return nil
	}
	for _, u := range units {
		if err := u.act(args[0]); err != nil {
			return err
		}
	}
	return nil
}

func list(units []unit, runningOnly bool) {
	for _, u := range units {
		switch {
		case u.Proc.Alive():
			fmt.Printf("%[1]s.service loaded active running %[1]s\n", u.Name)
		case !runningOnly:
			fmt.Printf("%[1]s.service loaded inactive dead %[1]s\n", u.Name)
		}
	}
}

func (u unit) act(verb string) error {
	switch verb {
	case "start":
		return u.start()
	case "stop", "kill":
		return u.Proc.Stop(context.Background(), stopGrace)
	case "restart":
		return errors.Join(u.Proc.Stop(context.Background(), stopGrace), u.start())
	}
	return nil
}

func (u unit) start() error {
	if u.Proc.Alive() {
		return nil
	}
	log, err := os.OpenFile(u.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(u.Args[0], u.Args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = u.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	u.Proc = host.FindProcess(cmd.Process.Pid)
	data, err := json.Marshal(u)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(unitsDir(), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(unitsDir(), u.Name+".json"), data, 0o644)
}

func find(pattern string) ([]unit, error) {
	files, err := filepath.Glob(filepath.Join(unitsDir(), pattern+".json"))
	if err != nil {
		return nil, err
	}
	var units []unit
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var u unit
		if err := json.Unmarshal(data, &u); err != nil {
			return nil, fmt.Errorf("read unit %s: %w", file, err)
		}
		units = append(units, u)
	}
	return units, nil
}

func unitsDir() string {
	if dir := os.Getenv("FAKESYSTEMD_UNITS"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "fakesystemd")
}
