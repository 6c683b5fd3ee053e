// Package logind is a D-Bus client of logind, the login manager of systemd. It makes the calls of stock's package
// nodeshutdown/systemd, each with a time-out, on a connection of its own: logind or the bus may hang. In addition, it
// closes each lock exactly once, verifies that logind has adopted the requested delay, and reads whether the machine is
// shutting down already.
package logind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown/systemd"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
)

// Names on the bus: logind (org.freedesktop.login1(5)) and systemd (org.freedesktop.systemd1(5)).
const (
	name             = "org.freedesktop.login1"
	path             = dbus.ObjectPath("/org/freedesktop/login1")
	managerInterface = name + ".Manager"

	systemdName    = "org.freedesktop.systemd1"
	systemdPath    = dbus.ObjectPath("/org/freedesktop/systemd1")
	systemdManager = systemdName + ".Manager"

	// inProgress is the name of logind's error for a delay lock that is requested during a shutdown.
	inProgress = name + ".OperationInProgress"

	// prepareForShutdown is the signal that announces a shutdown or cancels it.
	prepareForShutdown = "PrepareForShutdown"
)

// callTimeout is how long an answer is awaited. At a boot logind may take seconds.
const callTimeout = 10 * time.Second

// logind reloads its configuration some time after the request. As in stock, the delay is read maxReads times, with
// pauses that begin with firstPause and double.
const (
	firstPause = 100 * time.Millisecond
	maxReads   = 5
)

// signalBuffer is more signals than are sent during one shutdown.
const signalBuffer = 16

type connection struct {
	bus *dbus.Conn
	// override writes the delay to logind's configuration.
	override func(time.Duration) error
	clock    clock.Clock
}

// Connect returns a connection to the system bus that is closed when ctx ends. It does not fail if logind is not
// running. It returns soon after ctx has ended, and after callTimeout (10 s) at the latest.
func Connect(ctx context.Context, clock clock.Clock) (nodeshutdown.Logind, error) {
	open, closeIt := context.WithCancel(ctx)
	late := time.AfterFunc(callTimeout, closeIt)
	bus, err := dbus.ConnectSystemBus(dbus.WithContext(open))
	if !late.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		closeIt()
		return nil, fmt.Errorf("system bus: %w", err)
	}
	return connection{bus: bus, override: (&systemd.DBusCon{}).OverrideInhibitDelay, clock: clock}, nil
}

// call calls a method of an object. As with stock, the bus starts a service that does not run, unless the flags say
// that it does not.
func call(ctx context.Context, object dbus.BusObject, flags dbus.Flags, method string, args ...any) *dbus.Call {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return object.CallWithContext(ctx, method, flags, args...)
}

func (c connection) logind() dbus.BusObject { return c.bus.Object(name, path) }

// property reads a property of logind.
func property[T any](ctx context.Context, c connection, flags dbus.Flags, name string) (value T, err error) {
	var variant dbus.Variant
	err = call(ctx, c.logind(), flags, "org.freedesktop.DBus.Properties.Get", managerInterface, name).Store(&variant)
	if err != nil {
		return value, fmt.Errorf("property %s of logind: %w", name, err)
	}
	value, ok := variant.Value().(T)
	if !ok {
		return value, fmt.Errorf("property %s of logind is %v, want a %T", name, variant, value)
	}
	return value, nil
}

// EnsureInhibitDelay implements nodeshutdown.Logind. It raises InhibitDelayMaxSec in logind's configuration if it is
// less than minimum.
func (c connection) EnsureInhibitDelay(ctx context.Context, minimum time.Duration) (time.Duration, error) {
	granted, err := c.delay(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", nodeshutdown.ErrDelayUnknown, err)
	}
	if granted >= minimum {
		return granted, nil
	}
	if err := c.override(minimum); err != nil {
		return granted, err
	}
	systemd := c.bus.Object(systemdName, systemdPath)
	reload := call(ctx, systemd, 0, systemdManager+".KillUnit", "systemd-logind.service", "all", int32(syscall.SIGHUP))
	if reload.Err != nil {
		return granted, fmt.Errorf("reload the configuration of logind: %w", reload.Err)
	}
	pause := firstPause
	for range maxReads {
		now, err := c.delay(ctx)
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

// delay returns how long logind waits for delay locks. "infinity" is the largest number there; it becomes the longest
// duration, as all that are too long for one.
func (c connection) delay(ctx context.Context) (time.Duration, error) {
	microseconds, err := property[uint64](ctx, c, 0, "InhibitDelayMaxUSec")
	if microseconds > uint64(math.MaxInt64/time.Microsecond) {
		return math.MaxInt64, err
	}
	return time.Duration(microseconds) * time.Microsecond, err
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

// Inhibit implements nodeshutdown.Logind. Logind may grant the lock after the time-out: the call is not cancelled, so
// that such a lock can be released.
func (c connection) Inhibit(ctx context.Context) (io.Closer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer := make(chan *dbus.Call, 1)
	c.logind().Go(managerInterface+".Inhibit", 0, answer,
		"shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")
	select {
	case call := <-answer:
		return lockOf(call)
	case <-ctx.Done():
		go func() { // It ends with the connection at the latest.
			if late, err := lockOf(<-answer); err == nil {
				_ = late.Close() // Nothing depends on it.
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// lockOf returns the lock that logind has granted.
func lockOf(call *dbus.Call) (io.Closer, error) {
	var fd dbus.UnixFD
	err := call.Store(&fd)
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

// ShuttingDown implements nodeshutdown.Logind. It starts no logind: one that has ended during the shutdown stays away.
func (c connection) ShuttingDown(ctx context.Context) (bool, error) {
	return property[bool](ctx, c, dbus.FlagNoAutoStart, "PreparingForShutdown")
}

// Watch implements nodeshutdown.Logind.
func (c connection) Watch(ctx context.Context) (<-chan nodeshutdown.Announcement, error) {
	signals := make(chan *dbus.Signal, signalBuffer)
	c.bus.Signal(signals) // Before the rule is added: if the connection is lost in between, it is closed.
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.bus.AddMatchSignalContext(call, dbus.WithMatchObjectPath(path), dbus.WithMatchInterface(managerInterface),
		dbus.WithMatchMember(prepareForShutdown))
	if err != nil {
		c.bus.RemoveSignal(signals)
		return nil, fmt.Errorf("subscribe to PrepareForShutdown: %w", err)
	}
	events := make(chan nodeshutdown.Announcement)
	go c.forward(ctx, signals, c.owner(call), events)
	return events, nil
}

// owner returns the name that logind has on the bus since its last start, empty if it is not known.
func (c connection) owner(ctx context.Context) (owner string) {
	err := c.bus.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, name).Store(&owner)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to find out who is logind on the bus", "err", err)
	}
	return owner
}

// senderPatience is how long a signal waits until it is known whether a sender that is not known yet is logind.
const senderPatience = time.Second

// forward forwards signals until ctx or the connection ends. owner is the sender of those of logind. For another sender
// it is asked for again: logind may have been restarted.
func (c connection) forward(
	ctx context.Context, signals <-chan *dbus.Signal, owner string, events chan<- nodeshutdown.Announcement,
) {
	defer close(events)
	for {
		select {
		case <-ctx.Done():
			return
		case signal, connected := <-signals:
			if !connected {
				return
			}
			shuttingDown, ok := announced(signal)
			if !ok {
				klog.FromContext(ctx).Error(nil, "Ignoring a signal that announces no shutdown", "signal", signal)
				continue
			}
			if signal.Sender != owner {
				asked, cancel := context.WithTimeout(ctx, senderPatience)
				owner = c.owner(asked)
				cancel()
			}
			select {
			case events <- nodeshutdown.Announcement{ShuttingDown: shuttingDown, ByLogind: signal.Sender == owner}:
			case <-ctx.Done():
			}
		}
	}
}

// announced returns what a signal announces: a shutdown, or its cancellation. Signals that are sent to this connection
// alone need not be those that were subscribed to. What any program has attached to them is closed.
func announced(signal *dbus.Signal) (shuttingDown, ok bool) {
	if signal == nil || len(signal.Body) == 0 {
		return false, false
	}
	closeFiles(signal.Body...)
	shuttingDown, ok = signal.Body[0].(bool)
	return shuttingDown, ok && signal.Path == path && signal.Name == managerInterface+"."+prepareForShutdown
}

// closeFiles closes the files among the values, and in structures and variants. Arrays of files do not reach this: the
// library cannot read them and ends the connection.
func closeFiles(values ...any) {
	for _, value := range values {
		switch v := value.(type) {
		case dbus.UnixFD:
			_ = syscall.Close(int(v)) // Nothing depends on it.
		case dbus.Variant:
			closeFiles(v.Value())
		case []any:
			closeFiles(v...)
		}
	}
}
