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

// patience is how long it is watched whether a lock is given back, to say that
// it is held.
const patience = 50 * time.Millisecond

// Logind is systemd's login manager as far as a kubelet needs it
// (org.freedesktop.login1(5)): it hands out delay locks and announces that the
// machine goes down. It waits for nobody. Its methods may be called at any
// time by anybody.
type Logind struct {
	connection *dbus.Conn
	properties *prop.Properties

	mu sync.Mutex
	// locks are our ends of the pipes whose other ends the holders have, oldest
	// first, and asked the arguments of each request for one.
	locks []*os.File
	asked [][]string
}

// ServeLogind brings a login manager on the bus, whose locks may last for
// maxDelay. A kubelet that wants more writes to the configuration of this
// machine's logind, if there is one.
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
	b.ends = append(b.ends, logind.forget)
	return logind, b.own(logindName)
}

// PrepareForShutdown announces that the machine goes down, or that it does not
// after all.
func (l *Logind) PrepareForShutdown(begin bool) error {
	l.properties.SetMust(logindIface, preparingProperty, begin)
	return l.connection.Emit(logindPath, logindIface+".PrepareForShutdown", begin)
}

// Boot ends the shutdown as the next boot does: nobody is told.
func (l *Logind) Boot() { l.properties.SetMust(logindIface, preparingProperty, false) }

// Asked are the arguments of each request for a lock that was granted, oldest
// first: what, who, why, mode.
func (l *Logind) Asked() [][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.asked)
}

// Held says whether somebody holds the newest lock: a pipe ends when nobody has
// its other end.
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

// inhibit is what a kubelet calls to be told before the machine goes down. Then
// it is too late.
func (l *Logind) inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	if l.properties.GetMust(logindIface, preparingProperty).(bool) {
		return 0, dbus.NewError(logindName+".OperationInProgress",
			[]any{"The operation inhibition has been requested for is already running"})
	}
	var ends [2]int
	// Our end does not block, so that it can be watched.
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks = append(l.locks, os.NewFile(uintptr(ends[0]), "lock"))
	l.asked = append(l.asked, []string{what, who, why, mode})
	// The library sends the file and leaves our copy open.
	time.AfterFunc(handOver, func() { _ = syscall.Close(ends[1]) })
	return dbus.UnixFD(ends[1]), nil
}

func (l *Logind) forget(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, lock := range l.locks {
		errs = append(errs, lock.Close())
	}
	return errors.Join(errs...)
}
