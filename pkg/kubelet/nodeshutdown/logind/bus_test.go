package logind

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// bus is a system bus with logind as its only service. It implements the part of D-Bus that the client uses.
type bus struct {
	mu    sync.Mutex
	conns []*net.UnixConn
	// delay is InhibitDelayMaxUSec, reloadedDelay its value after logind has reloaded its configuration.
	delay, reloadedDelay time.Duration
	// shuttingDown is PreparingForShutdown; nil if logind does not have the property.
	shuttingDown *bool
	// silent is a method that is not answered, or AUTH; breaks is one after whose answer the connection ends.
	silent, breaks string
	// owner is the unique name of logind on the bus, ownName unless logind was restarted.
	owner string
	// late is how long logind takes to grant a lock, lockAsked is called when it is asked for one, unless nil.
	late      time.Duration
	lockAsked func()
	// rejectLocks rejects requests for locks, as logind does during a shutdown.
	rejectLocks bool
	// locks are the read ends of the pipes whose write ends were returned as locks, oldest first.
	locks []*os.File
	// requests are the arguments of the requests for locks.
	requests []string
	// subscriptions counts calls of AddMatch, reloads counts signals SIGHUP.
	subscriptions, reloads int
}

// system is the only bus of this process, since the library reuses its connection.
var system = &bus{}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		panic(err)
	}
	socket := filepath.Join(dir, "bus")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		panic(err)
	}
	go system.serve(listener)
	if err := os.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+socket); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// resetBus returns the bus in its state after a boot.
func resetBus(t *testing.T) *bus {
	t.Helper()
	b := system
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delay, b.reloadedDelay, b.reloads = time.Hour, time.Hour, 0
	b.rejectLocks, b.shuttingDown, b.requests = false, new(bool), nil
	b.silent, b.breaks, b.late, b.lockAsked, b.owner = "", "", 0, nil, ownName
	return b
}

// locked calls a function that reads or changes fields of the bus.
func (b *bus) locked(access func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	access()
}

func (b *bus) serve(listener *net.UnixListener) {
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.conns = append(b.conns, conn)
		b.mu.Unlock()
		go b.handle(conn)
	}
}

// handle authenticates a client and answers its calls until the connection ends.
func (b *bus) handle(conn *net.UnixConn) {
	defer b.close(conn)
	in := bufio.NewReader(conn)
	if _, err := in.ReadByte(); err != nil {
		return
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		if line == "BEGIN" {
			break
		}
		if strings.HasPrefix(line, "AUTH") && b.isSilent("AUTH") {
			continue
		}
		answer := "REJECTED EXTERNAL"
		switch {
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 0123456789abcdef0123456789abcdef"
		case line == "NEGOTIATE_UNIX_FD":
			answer = "AGREE_UNIX_FD"
		}
		if _, err := fmt.Fprintf(conn, "%s\r\n", answer); err != nil {
			return
		}
	}
	for {
		call, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		if err := b.answer(conn, call); err != nil {
			return
		}
	}
}

func (b *bus) answer(conn *net.UnixConn, call *dbus.Message) error {
	member, _ := call.Headers[dbus.FieldMember].Value().(string)
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()), dbus.FieldSender: dbus.MakeVariant(name),
	}}
	if b.isSilent(member) {
		return nil
	}
	var lock *os.File
	b.mu.Lock()
	breaks, late := b.breaks == member, b.late
	switch member {
	case "Hello":
		reply.Body = []any{":1.1"}
	case "AddMatch":
		b.subscriptions++
	case "GetNameOwner":
		reply.Body = []any{b.owner}
	case "KillUnit":
		b.reloads++
		b.delay = b.reloadedDelay
	case "Get":
		reply.Body = b.property(call.Body[1].(string))
	case "Inhibit":
		b.requests = append(b.requests, strings.TrimSpace(fmt.Sprintln(call.Body...)))
		if b.rejectLocks {
			reply.Type = dbus.TypeError
			reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant(inProgress)
			break
		}
		read, write, err := os.Pipe()
		if err != nil {
			b.mu.Unlock()
			return err
		}
		b.locks = append(b.locks, read)
		if b.lockAsked != nil {
			b.lockAsked()
		}
		lock, reply.Body = write, []any{dbus.UnixFD(write.Fd())}
	}
	b.mu.Unlock()
	if reply.Body == nil && member == "Get" {
		reply.Type = dbus.TypeError
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.UnknownProperty")
	}
	if lock != nil {
		<-time.After(late)
	}
	err := send(conn, reply)
	if lock != nil {
		err = errors.Join(err, lock.Close())
	}
	if breaks {
		err = errors.Join(err, errBroken)
	}
	return err
}

var errBroken = errors.New("the connection breaks")

// isSilent returns whether calls of a method are not answered.
func (b *bus) isSilent(method string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return method != "" && b.silent == method
}

// property returns the value of a property, nil if logind does not have it.
func (b *bus) property(property string) []any {
	switch {
	case property == "InhibitDelayMaxUSec":
		return []any{dbus.MakeVariant(uint64(b.delay.Microseconds()))}
	case property == "PreparingForShutdown" && b.shuttingDown != nil:
		return []any{dbus.MakeVariant(*b.shuttingDown)}
	}
	return nil
}

func send(conn *net.UnixConn, m *dbus.Message) error {
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	fds, err := m.CountFds()
	if err != nil {
		return err
	}
	if fds > 0 {
		m.Headers[dbus.FieldUnixFDs] = dbus.MakeVariant(uint32(fds))
	}
	var out bytes.Buffer
	rights, err := m.EncodeToWithFDs(&out, binary.LittleEndian)
	if err != nil {
		return err
	}
	var oob []byte
	if len(rights) > 0 {
		oob = syscall.UnixRights(rights...)
	}
	_, _, err = conn.WriteMsgUnix(out.Bytes(), oob, nil)
	return err
}

// ownName is the unique name of logind on the bus after its first start.
const ownName = ":1.2"

// announce announces a shutdown to all clients, or cancels it.
func (b *bus) announce(t *testing.T, shuttingDown bool) {
	t.Helper()
	b.locked(func() { b.shuttingDown = &shuttingDown })
	b.sendSignal(t, ownName, shuttingDown)
}

// sendSignal sends PrepareForShutdown with the given arguments to all clients.
func (b *bus) sendSignal(t *testing.T, sender string, body ...any) {
	t.Helper()
	b.sendNamed(t, prepareForShutdown, sender, body...)
}

// sendNamed sends a signal of logind with the given name and arguments to all clients.
func (b *bus) sendNamed(t *testing.T, member, sender string, body ...any) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.conns {
		err := send(conn, &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(path), dbus.FieldInterface: dbus.MakeVariant(name + ".Manager"),
			dbus.FieldMember: dbus.MakeVariant(member), dbus.FieldSender: dbus.MakeVariant(sender),
		}})
		if err != nil && !errors.Is(err, syscall.EPIPE) { // A client may have closed it a moment ago.
			t.Error(err)
		}
	}
}

// disconnectAll closes all connections.
func (b *bus) disconnectAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.conns {
		_ = conn.Close() // it may have ended by itself
	}
	b.conns = nil
}

func (b *bus) close(conn *net.UnixConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = conn.Close() // It may have ended by itself.
	b.conns = slices.DeleteFunc(b.conns, func(c *net.UnixConn) bool { return c == conn })
}

// held returns true while lock n, counted from 0, is held: the read end of a pipe is at its end when the write end is
// closed.
func (b *bus) held(t *testing.T, n int) bool {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.locks[n].SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := b.locks[n].Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// count returns the number of locks that were taken.
func (b *bus) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.locks)
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	await.Until(t, what, func() error {
		if !condition() {
			return errors.New("not yet")
		}
		return nil
	})
}
