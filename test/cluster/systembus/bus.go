package systembus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// Variable names the environment variable by which programs find the bus.
const Variable = "DBUS_SYSTEM_BUS_ADDRESS"

const (
	daemon       = "dbus-daemon"
	startTimeout = time.Minute
	pollInterval = 50 * time.Millisecond
)

// config allows every client to own every name and to send every message: the bus is private.
const config = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow receive_sender="*"/>
<allow own="*"/><allow user="*"/></policy></busconfig>
`

// Bus is a running bus, at first without services.
type Bus struct {
	address    string
	connection *dbus.Conn
	log        io.Writer
	// ends stop what was started, oldest first.
	ends []func(context.Context) error
}

// Start starts a bus with its files in dir, and installs the program for it if it is missing. A bus that an earlier run
// left in the same directory is stopped first. Errors that cannot be returned to a caller on the bus are written to
// log.
func Start(ctx context.Context, dir string, log io.Writer) (*Bus, error) {
	if err := build.InstallPackage(ctx, log, daemon, daemon); err != nil {
		return nil, fmt.Errorf("a system bus needs %s: %w", daemon, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of the system bus: %w", err)
	}
	bus := &Bus{address: "unix:path=" + filepath.Join(dir, "socket"), log: log}
	processes := host.Processes{LogDir: dir, RunDir: dir}
	end := func(ctx context.Context) error { return processes.Stop(ctx, daemon, 0) }
	if err := end(ctx); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, bus.address), 0o644); err != nil {
		return nil, fmt.Errorf("configure the system bus: %w", err)
	}
	process, err := processes.Start(host.Command{
		Name: daemon, Path: daemon, Args: []string{"--config-file=" + file, "--nofork", "--nopidfile"},
	})
	if err == nil {
		err = bus.connect(ctx, process)
	}
	if err != nil {
		text, _ := os.ReadFile(processes.LogFile(daemon))
		return nil, errors.Join(fmt.Errorf("start the system bus: %w; its log: %s", err, text),
			end(context.WithoutCancel(ctx)))
	}
	bus.ends = append(bus.ends, end, func(context.Context) error { return bus.connection.Close() })
	return bus, nil
}

// System returns the system bus of this machine, where ServeLogind needs root and no login manager that runs.
func System(log io.Writer) (*Bus, error) {
	connection, err := dbus.ConnectSystemBus()
	if err != nil {
		return nil, fmt.Errorf("connect to the system bus: %w", err)
	}
	bus := &Bus{connection: connection, log: log}
	bus.ends = append(bus.ends, func(context.Context) error { return connection.Close() })
	return bus, nil
}

// connect waits until the bus accepts connections. It fails at once if the process ends.
func (b *Bus) connect(ctx context.Context, process host.Process) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, startTimeout, true, func(context.Context) (bool, error) {
		if b.connection, last = dbus.Connect(b.address); last == nil {
			return true, nil
		}
		if !process.Alive() {
			return false, errors.New("it ended")
		}
		return false, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// Address is the value of Variable; "" for the system bus of this machine.
func (b *Bus) Address() string { return b.address }

// Stop stops the services, after their jobs have ended, and then the bus.
func (b *Bus) Stop(ctx context.Context) error {
	var errs []error
	for _, end := range slices.Backward(b.ends) {
		errs = append(errs, end(ctx))
	}
	return errors.Join(errs...)
}

// own requests that name for this connection.
func (b *Bus) own(name string) error {
	reply, err := b.connection.RequestName(name, dbus.NameFlagDoNotQueue)
	if err == nil && reply != dbus.RequestNameReplyPrimaryOwner {
		err = fmt.Errorf("reply %d, want %d: another connection owns it", reply, dbus.RequestNameReplyPrimaryOwner)
	}
	if err != nil {
		return fmt.Errorf("own the name %s on the system bus: %w", name, err)
	}
	return nil
}
