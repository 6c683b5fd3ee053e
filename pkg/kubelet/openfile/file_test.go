package openfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
