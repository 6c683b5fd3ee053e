package openfile

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/shortcall"
)

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestReadAgain: an open file is read from its beginning each time, and a closed one is opened again.
func TestReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f := New(path)
	var buffer []byte
	for _, content := range []string{"first\n", "a second one\n", "", "third\n"} {
		write(t, path, []byte(content))
		for range 2 {
			if data, err := f.Read(&buffer); err != nil || string(data) != content {
				t.Errorf("%q, %v, want %q", data, err, content)
			}
		}
		if f.file == nil {
			t.Error("the file is closed")
		}
	}
	f.Close()
	f.Close()
	if data, err := f.Read(&buffer); err != nil || string(data) != "third\n" {
		t.Errorf("after Close: %q, %v", data, err)
	}
	f.Close()
}

// TestFileIsCreatedAgain: a file that cannot be read any more is opened again. A folder stands for a file of a removed
// cgroup: reading it fails too.
func TestFileIsCreatedAgain(t *testing.T) {
	dir := t.TempDir()
	f := New(filepath.Join(dir, "memory.stat"))
	var buffer []byte
	if _, err := f.Read(&buffer); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), f.Path()) {
		t.Fatal(err)
	}
	write(t, f.Path(), []byte("anon 1\n"))
	var err error
	if f.file, err = os.Open(dir); err != nil {
		t.Fatal(err)
	}
	if data, err := f.Read(&buffer); err != nil || string(data) != "anon 1\n" {
		t.Errorf("%q, %v", data, err)
	}
	f.Close()
}

// TestFolder: what can be opened and not read stays closed, and the error names it.
func TestFolder(t *testing.T) {
	f := New(t.TempDir())
	var buffer []byte
	if _, err := f.Read(&buffer); err == nil || !strings.Contains(err.Error(), f.Path()) || f.file != nil {
		t.Errorf("%v, open: %t", err, f.file != nil)
	}
}

// TestLongFiles: the buffer grows up to a limit.
func TestLongFiles(t *testing.T) {
	f := New(filepath.Join(t.TempDir(), "file"))
	defer f.Close()
	var buffer []byte
	for _, length := range []int{0, 1, least - 1, least, least + 1, 1 << 20, Most - 1} {
		write(t, f.Path(), bytes.Repeat([]byte{'\n'}, length))
		if data, err := f.Read(&buffer); err != nil || len(data) != length {
			t.Errorf("%d of %d bytes, %v", len(data), length, err)
		}
	}
	if err := os.Truncate(f.Path(), Most+1); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(&buffer); !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), f.Path()) {
		t.Errorf("a file that is too long: %v", err)
	}
}

// TestReadingAllocatesNothing holds for an open file and a buffer that is large enough.
func TestReadingAllocatesNothing(t *testing.T) {
	f := New(filepath.Join(t.TempDir(), "file"))
	write(t, f.Path(), bytes.Repeat([]byte{'\n'}, 3*least))
	defer f.Close()
	var buffer []byte
	if n := testing.AllocsPerRun(100, func() {
		if _, err := f.Read(&buffer); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestReadRecord: files of procfs are read with one call, others as by Read, also if the buffer is too small.
func TestReadRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, []byte("content\n"))
	var calls shortcall.Calls
	for _, c := range []struct {
		path     string
		ofKernel bool
	}{{"/proc/meminfo", true}, {"/proc/self/limits", true}, {path, false}} {
		f := New(c.path)
		small, large := make([]byte, 10), make([]byte, least)
		for range 3 {
			data, err := f.ReadRecord(&large, &calls)
			if n := bytes.Count(data, []byte{'\n'}); err != nil || n == 0 || data[len(data)-1] != '\n' {
				t.Errorf("%s: %q, %v", c.path, data, err)
			}
			small = small[:10:10]
			if again, err := f.ReadRecord(&small, &calls); err != nil || len(again) != len(data) {
				t.Errorf("%s, small buffer: %q, %v, want %q", c.path, again, err, data)
			}
		}
		if f.ofKernel != c.ofKernel {
			t.Errorf("%s: of the kernel %t, want %t", c.path, f.ofKernel, c.ofKernel)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = f.ReadRecord(&large, &calls) }); n > 0 {
			t.Errorf("%s: %v allocations", c.path, n)
		}
		f.Close()
	}
}

// TestRecordOfAnEndedProcess: as a file of a removed cgroup, it is opened again when it cannot be read any more.
func TestRecordOfAnEndedProcess(t *testing.T) {
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("/proc", strconv.Itoa(sleeper.Process.Pid), "limits")
	f := New(path)
	defer f.Close()
	var (
		buffer []byte
		calls  shortcall.Calls
	)
	for range 2 {
		if data, err := f.ReadRecord(&buffer, &calls); err != nil || len(data) == 0 {
			t.Errorf("%q, %v", data, err)
		}
	}
	if err := sleeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = sleeper.Wait() // It was killed.
	if data, err := f.ReadRecord(&buffer, &calls); err == nil || !strings.Contains(err.Error(), path) || f.file != nil {
		t.Errorf("%q, %v", data, err)
	}
}
