package shortcall

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// TestRead: the same whether the runtime is told or not.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, folder := open(t, path), open(t, filepath.Dir(path))
	for _, told := range []bool{false, true} {
		calls := Calls{Told: told}
		for _, c := range []struct {
			size int
			want string
		}{{7, "content"}, {100, "content"}, {2, "co"}} {
			buffer := make([]byte, c.size)
			if n, err := calls.Read(file, buffer); err != nil || string(buffer[:n]) != c.want {
				t.Errorf("%d bytes, told %t: %q, %v, want %q", c.size, told, buffer[:n], err, c.want)
			}
		}
		if _, err := calls.Read(folder, make([]byte, 1)); !errors.Is(err, unix.EISDIR) {
			t.Errorf("a folder, told %t: %v", told, err)
		}
	}
}

func open(t *testing.T, path string) (fd int) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// TestState: the same whether the runtime is told or not.
func TestState(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	var want unix.Stat_t
	if err := unix.Stat(dir, &want); err != nil {
		t.Fatal(err)
	}
	for _, told := range []bool{false, true} {
		calls := Calls{Told: told}
		var got unix.Statx_t
		err := calls.State(append([]byte(dir), 0), &got)
		if err != nil || got.Ino != want.Ino || int64(got.Nlink) != int64(want.Nlink) {
			t.Errorf("told %t: inode %d, %d links, %v, want %d, %d", told, got.Ino, got.Nlink, err, want.Ino, want.Nlink)
		}
		if err := calls.State(append([]byte(dir), "/none\x00"...), &got); !errors.Is(err, unix.ENOENT) {
			t.Errorf("told %t, no file: %v", told, err)
		}
	}
}

// TestToldAfterLongCalls: the runtime is told about one call in a millisecond of them, and about all for a second after
// a long one, which it may have been told about or not.
func TestToldAfterLongCalls(t *testing.T) {
	var calls Calls
	now := time.Unix(1e9, 0)
	for range 3 {
		for range 4 {
			if !calls.short(now) {
				t.Fatal("the runtime is told although calls took less than a millisecond")
			}
			calls.took(now, longCall/4, true)
		}
		if calls.short(now) {
			t.Fatal("the runtime is not told although calls took a millisecond together")
		}
		calls.took(now, longCall, false)
	}
	for _, short := range []bool{false, true} {
		calls.took(now, 2*longCall, short)
		calls.took(now, 1, false)
		now = now.Add(2*longCall + toldFor - 1)
		if calls.short(now) {
			t.Errorf("the runtime is not told, less than %v after a long call", toldFor)
		}
		if now = now.Add(1); !calls.short(now) {
			t.Errorf("the runtime is told, %v after a long call", toldFor)
		}
	}
	if calls.Told = true; calls.short(now) {
		t.Error("the runtime is not told although it is to be told about all")
	}
}

func TestTimer(t *testing.T) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if n, err := Expirations(fd); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("before it was set: %d, %v", n, err)
	}
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond} {
		if err := SetTimer(fd, d); err != nil {
			t.Fatal(d, err)
		}
		await.True(t, "the timer to expire", func() bool { n, err := Expirations(fd); return n == 1 && err == nil })
		if n, err := Expirations(fd); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("%v: read again: %d, %v", d, n, err)
		}
	}
	if err := SetTimer(-1, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("no timer: %v", err)
	}
}

func TestClock(t *testing.T) {
	before, err := Clock(unix.CLOCK_MONOTONIC)
	if err != nil {
		t.Fatal(err)
	}
	var other unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &other); err != nil {
		t.Fatal(err)
	}
	after, err := Clock(unix.CLOCK_MONOTONIC)
	if err != nil || before.Nano() > other.Nano() || other.Nano() > after.Nano() {
		t.Errorf("%v, %v, %v: %v", before, other, after, err)
	}
	if _, err := Clock(999); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no clock: %v", err)
	}
}
