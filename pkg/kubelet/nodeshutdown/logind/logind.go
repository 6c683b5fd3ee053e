// Package logind speaks to systemd's login manager over the system bus. The calls themselves are stock's (package
// nodeshutdown/systemd); what is ours is who closes a lock, what happens when logind does not give what is asked for,
// and the question whether the machine goes down already.
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
	// tooLate is logind's answer to a request for a delay lock once the shutdown has begun.
	tooLate = name + ".OperationInProgress"
)

// logind reads its configuration anew some time after it was asked to; looks are doubled from firstLook on, as by
// stock.
const (
	firstLook = 100 * time.Millisecond
	looks     = 5
)

type connection struct {
	bus *systemd.DBusCon
	// override writes the delay into logind's configuration.
	override func(time.Duration) error
	clock    clock.Clock
}

// Connect connects to the system bus: the one that the process has, if it is alive. The login manager may be away.
func Connect(clock clock.Clock) (nodeshutdown.Logind, error) {
	bus, err := systemd.NewDBusCon()
	if err != nil {
		return nil, fmt.Errorf("system bus: %w", err)
	}
	return connection{bus: bus, override: bus.OverrideInhibitDelay, clock: clock}, nil
}

// Grant implements nodeshutdown.Logind: it raises InhibitDelayMaxSec in logind's configuration if that is too small.
func (c connection) Grant(ctx context.Context, wanted time.Duration) (time.Duration, error) {
	granted, err := c.bus.CurrentInhibitDelay()
	if err != nil || granted >= wanted {
		return granted, err
	}
	if err := c.override(wanted); err != nil {
		return granted, err
	}
	if err := c.bus.ReloadLogindConf(); err != nil {
		return granted, err
	}
	pause := firstLook
	for range looks {
		now, err := c.bus.CurrentInhibitDelay()
		if err != nil {
			return granted, err
		}
		if granted = now; granted >= wanted {
			return granted, nil
		}
		if err := c.sleep(ctx, pause); err != nil {
			return granted, err
		}
		pause *= 2
	}
	return granted,
		fmt.Errorf("logind's InhibitDelayMaxSec is %v and was not raised to %v: another file in logind.conf.d may set it",
			granted, wanted)
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
	var refused dbus.Error
	switch {
	case errors.As(err, &refused) && refused.Name == tooLate:
		return nil, nodeshutdown.ErrGoingDown
	case err != nil:
		return nil, err
	}
	return &lock{fd: int(fd)}, nil
}

// lock is the file descriptor that holds a delay lock.
type lock struct {
	once sync.Once
	fd   int
}

// Close gives the lock back, once: when it is called again the number may be that of another file.
func (l *lock) Close() (err error) {
	l.once.Do(func() { err = syscall.Close(l.fd) })
	if err != nil {
		return fmt.Errorf("lock of logind: %w", err)
	}
	return nil
}

// Watch implements nodeshutdown.Logind.
func (c connection) Watch(ctx context.Context) (nodeshutdown.Announcements, error) {
	said, err := c.bus.MonitorShutdown(klog.FromContext(ctx))
	if err != nil {
		return nodeshutdown.Announcements{}, fmt.Errorf("announcements of logind: %w", err)
	}
	events := make(chan bool)
	go forward(ctx, said, events)
	heard := nodeshutdown.Announcements{Events: events}
	heard.GoingDown, err = c.goingDown()
	heard.Known = err == nil
	if err != nil {
		klog.FromContext(ctx).V(2).Info("logind does not say whether the machine goes down", "err", err)
	}
	return heard, nil
}

// forward passes on what is said until ctx ends. Afterwards it only empties the channel, for the sake of its sender.
func forward(ctx context.Context, said <-chan bool, events chan<- bool) {
	defer close(events)
	for goingDown := range said {
		select {
		case events <- goingDown:
		case <-ctx.Done():
		}
	}
}

func (c connection) goingDown() (bool, error) {
	value, err := c.bus.SystemBus.Object(name, path).GetProperty(preparing)
	if err != nil {
		return false, err
	}
	down, ok := value.Value().(bool)
	if !ok {
		return false, fmt.Errorf("%s is %v, want a boolean", preparing, value)
	}
	return down, nil
}
