package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// journalTime is the time format of journalctl's options; times are in UTC.
const journalTime = "2006-1-2 15:4:5"

// journal reads the logs of system services.
type journal interface {
	// hasService returns whether a service ever wrote to the journal.
	hasService(ctx context.Context, service string) bool
	// copyLogs writes the log of services to w. If journalctl ran and failed, its message is on w and err is nil.
	copyLogs(ctx context.Context, w io.Writer, services []string, options logOptions) error
}

// systemJournal calls journalctl, which must be in PATH.
type systemJournal struct{}

// hasService lists the units, because journalctl does not fail for a unit that does not exist.
func (systemJournal) hasService(ctx context.Context, service string) bool {
	units, err := exec.CommandContext(ctx, "journalctl", "--field", "_SYSTEMD_UNIT").CombinedOutput()
	return err == nil && strings.Contains(string(units), service+".service")
}

func (systemJournal) copyLogs(ctx context.Context, w io.Writer, services []string, options logOptions) error {
	cmd := exec.CommandContext(ctx, "journalctl", journalArguments(services, options)...)
	cmd.Stdout, cmd.Stderr = w, w
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

// journalArguments returns the command line. Service names were validated by validateServiceName, and every value is
// attached to its option, so that none can be parsed as an option itself; boot is a number.
func journalArguments(services []string, o logOptions) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if o.since != nil {
		args = append(args, "--since="+o.since.Format(journalTime))
	}
	if o.until != nil {
		args = append(args, "--until="+o.until.Format(journalTime))
	}
	if o.tail != nil {
		args = append(args, "--pager-end", fmt.Sprintf("--lines=%d", *o.tail))
	}
	for _, service := range services {
		args = append(args, "--unit="+service)
	}
	if o.pattern != "" {
		args = append(args, "--grep="+o.pattern)
	}
	if o.boot != nil {
		args = append(args, "--boot", strconv.Itoa(*o.boot))
	}
	return args
}
