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

func TestReadAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd := int(file.Fd())
	for _, c := range []struct {
		offset int64
		size   int
		want   string
	}{
		{0, 7, "content"}, {0, 100, "content"}, {3, 2, "te"}, {7, 1, ""}, {100, 1, ""},
	} {
		buffer := make([]byte, c.size)
		if n, err := ReadAt(fd, buffer, c.offset); err != nil || string(buffer[:n]) != c.want {
			t.Errorf("%d bytes at %d: %q, %v, want %q", c.size, c.offset, buffer[:n], err, c.want)
		}
	}
	if _, err := ReadAt(fd, make([]byte, 1), -1); !errors.Is(err, unix.EINVAL) {
		t.Errorf("at -1: %v", err)
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if _, err := ReadAt(int(folder.Fd()), make([]byte, 1), 0); !errors.Is(err, unix.EISDIR) {
		t.Errorf("a folder: %v", err)
	}
}

func TestGuard(t *testing.T) {
	var g Guard
	for range 3 {
		if g.Took(longCall); !g.Allows() {
			t.Fatal("the next call is not allowed though none took long")
		}
	}
	for range 2 {
		g.Took(longCall + 1)
		for i := range toldCalls {
			if g.Allows() {
				t.Errorf("call %d after a long one is allowed", i)
			}
		}
		if !g.Allows() {
			t.Errorf("no call is allowed after %d others", toldCalls)
		}
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

func TestStat(t *testing.T) {
	folder, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	var got, want unix.Stat_t
	if err := unix.Fstat(int(folder.Fd()), &want); err != nil {
		t.Fatal(err)
	}
	if err := Stat(int(folder.Fd()), &got); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if err := Stat(-1, &got); !errors.Is(err, unix.EBADF) {
		t.Errorf("no file: %v", err)
	}
}
