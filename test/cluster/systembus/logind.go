package systembus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
)

const (
	logindName  = "org.freedesktop.login1"
	logindPath  = dbus.ObjectPath("/org/freedesktop/login1")
	logindIface = logindName + ".Manager"

	maxDelayProperty  = "InhibitDelayMaxUSec"
	preparingProperty = "PreparingForShutdown"
)

// handOver is how long the bus may take to send an open file.
const handOver = time.Second

// patience is how long Held waits for the release of a lock before it reports the lock as held.
const patience = 50 * time.Millisecond

// Logind is systemd's login manager as far as a kubelet needs it (org.freedesktop.login1(5)): it grants delay locks and
// announces a shutdown, for which it does not wait. It is safe for concurrent use.
type Logind struct {
	connection *dbus.Conn
	properties *prop.Properties

	mu sync.Mutex
	// locks are our ends of the pipes whose other ends the holders have, oldest first, and requests the arguments with
	// which they were requested.
	locks    []*os.File
	requests [][]string
}

// ServeLogind serves a login manager on the bus, whose locks may last for maxDelay. A kubelet that needs more writes to
// the configuration of this machine's logind, if there is one.
func (b *Bus) ServeLogind(maxDelay time.Duration) (*Logind, error) {
	logind := &Logind{connection: b.connection}
	var err error
	logind.properties, err = prop.Export(b.connection, logindPath, prop.Map{logindIface: {
		maxDelayProperty:  {Value: uint64(maxDelay.Microseconds()), Emit: prop.EmitFalse},
		preparingProperty: {Value: false, Emit: prop.EmitFalse},
	}})
	methods := map[string]any{"Inhibit": logind.inhibit}
	if err := errors.Join(err, b.connection.ExportMethodTable(methods, logindPath, logindIface)); err != nil {
		return nil, fmt.Errorf("serve logind: %w", err)
	}
	b.ends = append(b.ends, logind.close)
	return logind, b.own(logindName)
}

// PrepareForShutdown announces that the machine is about to shut down, or with false that the shutdown is cancelled.
func (l *Logind) PrepareForShutdown(begin bool) error {
	l.properties.SetMust(logindIface, preparingProperty, begin)
	return l.connection.Emit(logindPath, logindIface+".PrepareForShutdown", begin)
}

// Boot ends the shutdown as the next boot does, without a signal.
func (l *Logind) Boot() { l.properties.SetMust(logindIface, preparingProperty, false) }

// Requests returns the arguments of each request for a lock that was granted, oldest first: what, who, why, mode.
func (l *Logind) Requests() [][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.requests)
}

// Held returns whether the newest lock is held: reading from its pipe ends when the other end is closed.
func (l *Logind) Held() (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.locks) == 0 {
		return false, nil
	}
	newest := l.locks[len(l.locks)-1]
	if err := newest.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return false, err
	}
	_, err := newest.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded), nil
}

// inhibit grants a lock. It fails once a shutdown was announced.
func (l *Logind) inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	if l.properties.GetMust(logindIface, preparingProperty).(bool) {
		return 0, dbus.NewError(logindName+".OperationInProgress",
			[]any{"The operation inhibition has been requested for is already running"})
	}
	var ends [2]int
	// Our end does not block, so that Held can use a deadline.
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks = append(l.locks, os.NewFile(uintptr(ends[0]), "lock"))
	l.requests = append(l.requests, []string{what, who, why, mode})
	// The library sends the file and leaves our copy open.
	time.AfterFunc(handOver, func() { _ = syscall.Close(ends[1]) })
	return dbus.UnixFD(ends[1]), nil
}

func (l *Logind) close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, lock := range l.locks {
		errs = append(errs, lock.Close())
	}
	return errors.Join(errs...)
}
