//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	logindName  = "org.freedesktop.login1"
	logindPath  = dbus.ObjectPath("/org/freedesktop/login1")
	logindIface = "org.freedesktop.login1.Manager"
)

// busConfig lets everybody own and say anything: the bus is private.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow receive_sender="*"/><allow own="*"/><allow user="*"/></policy></busconfig>`

// fakeLogind is systemd's login manager on a bus of its own, as far as a kubelet needs it: it hands out delay locks and announces
// that the machine goes down.
type fakeLogind struct {
	connection *dbus.Conn
	properties *prop.Properties

	mu sync.Mutex
	// locks are our ends of the pipes whose other ends the holders have, oldest first.
	locks []*os.File
	// asked are the arguments of each request for a lock.
	asked [][]string
}

// startLogind starts a private bus with a login manager, and makes it the system bus of what this test starts. Locks may last for
// maxDelay.
func startLogind(t *testing.T, maxDelay time.Duration) *fakeLogind {
	t.Helper()
	address := startBus(t)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
	connection, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	logind := &fakeLogind{connection: connection}
	logind.properties, err = prop.Export(connection, logindPath, prop.Map{logindIface: {
		"InhibitDelayMaxUSec":  {Value: uint64(maxDelay.Microseconds()), Emit: prop.EmitFalse},
		"PreparingForShutdown": {Value: false, Emit: prop.EmitFalse},
	}})
	if err := errors.Join(err, connection.Export(logind, logindPath, logindIface)); err != nil {
		t.Fatal(err)
	}
	reply, err := connection.RequestName(logindName, dbus.NameFlagDoNotQueue)
	if err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("own %s: %v, reply %d", logindName, err, reply)
	}
	t.Cleanup(func() {
		connection.Close()
		for _, lock := range logind.locks {
			lock.Close()
		}
	})
	return logind
}

func startBus(t *testing.T) (address string) {
	t.Helper()
	dir := t.TempDir()
	socket, config := filepath.Join(dir, "bus"), filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, busConfig, socket), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := build.InstallPackage(t.Context(), os.Stderr, "dbus-daemon", "dbus-daemon"); err != nil {
		t.Fatalf("a private bus needs dbus-daemon: %v", err)
	}
	daemon := exec.Command("dbus-daemon", "--config-file="+config, "--nofork", "--nopidfile")
	said, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	daemon.Stderr = said
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait() // it was killed
	})
	err = kit.Poll(t.Context(), time.Minute, func(context.Context) error {
		_, err := os.Stat(socket)
		return err
	})
	if err != nil {
		why, _ := os.ReadFile(said.Name())
		t.Fatalf("%v; dbus-daemon says: %s", err, why)
	}
	return "unix:path=" + socket
}

// Inhibit is what a kubelet calls to be told before the machine goes down. Then it is too late.
func (l *fakeLogind) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	if l.properties.GetMust(logindIface, "PreparingForShutdown").(bool) {
		return 0, dbus.NewError("org.freedesktop.login1.OperationInProgress", []any{"The operation inhibition has been requested for is already running"})
	}
	read, write, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks = append(l.locks, read)
	l.asked = append(l.asked, []string{what, who, why, mode})
	fd, err := syscall.Dup(int(write.Fd())) // the bus sends and closes nothing
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	write.Close()
	time.AfterFunc(time.Second, func() { syscall.Close(fd) }) // our copy, once the answer is sent
	return dbus.UnixFD(fd), nil
}

// prepareForShutdown announces that the machine goes down, or that it does not after all.
func (l *fakeLogind) prepareForShutdown(begin bool) error {
	l.properties.SetMust(logindIface, "PreparingForShutdown", begin)
	return l.connection.Emit(logindPath, logindIface+".PrepareForShutdown", begin)
}

// boot ends the shutdown as the next boot does: nobody is told.
func (l *fakeLogind) boot() { l.properties.SetMust(logindIface, "PreparingForShutdown", false) }

// held says whether somebody holds the newest lock: a pipe ends when nobody has its other end.
func (l *fakeLogind) held() (count int, held bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.locks) == 0 {
		return 0, false, nil
	}
	newest := l.locks[len(l.locks)-1]
	if err := newest.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		return 0, false, err
	}
	_, err = newest.Read(make([]byte, 1))
	return len(l.locks), errors.Is(err, os.ErrDeadlineExceeded), nil
}

// asked waits until that many locks were asked for.
func (s *space) asked(l *fakeLogind, count int) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		got, _, err := l.held()
		if err == nil && got != count {
			err = fmt.Errorf("%d locks were asked for, want %d", got, count)
		}
		return err
	})
}

// lock waits until that many locks were asked for and the newest is held, or is not.
func (s *space) lock(l *fakeLogind, count int, held bool) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		gotCount, got, err := l.held()
		if err == nil && (gotCount != count || got != held) {
			err = fmt.Errorf("%d locks were asked for and the newest is held %v, want %d and %v", gotCount, got, count, held)
		}
		return err
	})
}
