// Package logind is a D-Bus client of logind, the login manager of systemd. The calls are those of stock's package
// nodeshutdown/systemd. In addition, this package closes each lock exactly once, verifies that logind has adopted the
// requested delay, and reads whether the machine is shutting down already.
package logind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown/systemd"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
)

const (
	name      = "org.freedesktop.login1"
	path      = dbus.ObjectPath("/org/freedesktop/login1")
	preparing = name + ".Manager.PreparingForShutdown"
	// inProgress is the name of logind's error for a delay lock that is requested during a shutdown.
	inProgress = name + ".OperationInProgress"
)

// logind reloads its configuration some time after the request. As in stock, the delay is read maxReads times, with
// pauses that begin with firstPause and double.
const (
	firstPause = 100 * time.Millisecond
	maxReads   = 5
)

type connection struct {
	bus *systemd.DBusCon
	// override writes the delay to logind's configuration.
	override func(time.Duration) error
	clock    clock.Clock
}

// Connect returns a connection to the system bus; it reuses that of the process, if there is one. It does not fail if
// logind is not running.
func Connect(clock clock.Clock) (nodeshutdown.Logind, error) {
	bus, err := systemd.NewDBusCon()
	if err != nil {
		return nil, fmt.Errorf("system bus: %w", err)
	}
	return connection{bus: bus, override: bus.OverrideInhibitDelay, clock: clock}, nil
}

// EnsureInhibitDelay implements nodeshutdown.Logind. It raises InhibitDelayMaxSec in logind's configuration if it is
// less than minimum.
func (c connection) EnsureInhibitDelay(ctx context.Context, minimum time.Duration) (time.Duration, error) {
	granted, err := c.bus.CurrentInhibitDelay()
	if err != nil || granted >= minimum {
		return granted, err
	}
	if err := c.override(minimum); err != nil {
		return granted, err
	}
	if err := c.bus.ReloadLogindConf(); err != nil {
		return granted, err
	}
	pause := firstPause
	for range maxReads {
		now, err := c.bus.CurrentInhibitDelay()
		if err != nil {
			return granted, err
		}
		if granted = now; granted >= minimum {
			return granted, nil
		}
		if err := c.sleep(ctx, pause); err != nil {
			return granted, err
		}
		pause *= 2
	}
	return granted,
		fmt.Errorf("logind's InhibitDelayMaxSec is %v and was not raised to %v: another file in logind.conf.d may set it",
			granted, minimum)
}

func (c connection) sleep(ctx context.Context, d time.Duration) error {
	timer := c.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}

// Inhibit implements nodeshutdown.Logind.
func (c connection) Inhibit() (io.Closer, error) {
	fd, err := c.bus.InhibitShutdown()
	var busErr dbus.Error
	switch {
	case errors.As(err, &busErr) && busErr.Name == inProgress:
		return nil, nodeshutdown.ErrShutdownInProgress
	case err != nil:
		return nil, err
	}
	return &lock{fd: int(fd)}, nil
}

// lock is a delay lock. It is held while its file descriptor is open.
type lock struct {
	once sync.Once
	fd   int
}

// Close releases the lock. Further calls have no effect: the file descriptor may belong to another file then.
func (l *lock) Close() (err error) {
	l.once.Do(func() { err = syscall.Close(l.fd) })
	if err != nil {
		return fmt.Errorf("closing the delay lock: %w", err)
	}
	return nil
}

// Watch implements nodeshutdown.Logind.
func (c connection) Watch(ctx context.Context) (nodeshutdown.ShutdownEvents, error) {
	signals, err := c.bus.MonitorShutdown(klog.FromContext(ctx))
	if err != nil {
		return nodeshutdown.ShutdownEvents{}, fmt.Errorf("subscribing to PrepareForShutdown: %w", err)
	}
	events := make(chan bool)
	go forward(ctx, signals, events)
	shutdowns := nodeshutdown.ShutdownEvents{Events: events}
	shutdowns.ShuttingDown, err = c.preparingForShutdown()
	shutdowns.Known = err == nil
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to read whether the machine is shutting down", "err", err)
	}
	return shutdowns, nil
}

// forward forwards signals until ctx ends. Afterwards it discards them, so that their sender does not block.
func forward(ctx context.Context, signals <-chan bool, events chan<- bool) {
	defer close(events)
	for shuttingDown := range signals {
		select {
		case events <- shuttingDown:
		case <-ctx.Done():
		}
	}
}

// preparingForShutdown reads the property PreparingForShutdown.
func (c connection) preparingForShutdown() (bool, error) {
	value, err := c.bus.SystemBus.Object(name, path).GetProperty(preparing)
	if err != nil {
		return false, err
	}
	shuttingDown, ok := value.Value().(bool)
	if !ok {
		return false, fmt.Errorf("%s is %v, want a boolean", preparing, value)
	}
	return shuttingDown, nil
}
