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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// bus is a system bus with a login manager and nobody else on it: as much of D-Bus as its clients here need.
type bus struct {
	mu    sync.Mutex
	conns []*net.UnixConn
	// delay is InhibitDelayMaxUSec, raised what it becomes when logind reads its configuration again.
	delay, raised time.Duration
	// goingDown is PreparingForShutdown; nil when this logind does not have it. busy refuses locks.
	goingDown *bool
	busy      bool
	// locks are our ends of the pipes that were handed out, oldest first.
	locks []*os.File
	asked []string
	// listening are the signals that somebody wants, reloads counts SIGHUPs.
	listening, reloads int
}

// system is the one bus of this process: the library keeps its connection.
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

// fresh is the bus as it is after a boot.
func fresh(t *testing.T) *bus {
	t.Helper()
	b := system
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delay, b.raised, b.busy, b.goingDown, b.reloads, b.asked = time.Hour, time.Hour, false, new(bool), 0, nil
	return b
}

// set changes or reads what the bus is like.
func (b *bus) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
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
		go b.talk(conn)
	}
}

func (b *bus) talk(conn *net.UnixConn) {
	defer conn.Close()
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
	var handed *os.File
	b.mu.Lock()
	switch member {
	case "Hello":
		reply.Body = []any{":1.1"}
	case "AddMatch":
		b.listening++
	case "KillUnit":
		b.reloads++
		b.delay = b.raised
	case "Get":
		reply.Body = b.property(call.Body[1].(string))
	case "Inhibit":
		b.asked = append(b.asked, strings.TrimSpace(fmt.Sprintln(call.Body...)))
		if b.busy {
			reply.Type = dbus.TypeError
			reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant(tooLate)
			break
		}
		read, write, err := os.Pipe()
		if err != nil {
			b.mu.Unlock()
			return err
		}
		b.locks = append(b.locks, read)
		handed, reply.Body = write, []any{dbus.UnixFD(write.Fd())}
	}
	b.mu.Unlock()
	if reply.Body == nil && member == "Get" {
		reply.Type = dbus.TypeError
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.UnknownProperty")
	}
	err := send(conn, reply)
	if handed != nil {
		err = errors.Join(err, handed.Close())
	}
	return err
}

func (b *bus) property(of string) []any {
	switch {
	case of == "InhibitDelayMaxUSec":
		return []any{dbus.MakeVariant(uint64(b.delay.Microseconds()))}
	case of == "PreparingForShutdown" && b.goingDown != nil:
		return []any{dbus.MakeVariant(*b.goingDown)}
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

// announce tells everybody that the machine goes down, or that it does not.
func (b *bus) announce(t *testing.T, down bool) {
	t.Helper()
	b.say(t, down)
}

func (b *bus) say(t *testing.T, body ...any) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.conns {
		err := send(conn, &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(path), dbus.FieldInterface: dbus.MakeVariant(name + ".Manager"),
			dbus.FieldMember: dbus.MakeVariant("PrepareForShutdown"), dbus.FieldSender: dbus.MakeVariant(":1.2"),
		}})
		if err != nil {
			t.Error(err)
		}
	}
}

// hangUp ends all connections.
func (b *bus) hangUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.conns {
		_ = conn.Close() // it may have ended by itself
	}
	b.conns = nil
}

// held says whether somebody holds the lock that was handed out as the nth, counted from 0: a pipe ends when nobody has
// its other end.
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

// count is how many locks were handed out.
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
