package recordfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const maxSize = 100

// newFile returns a file in a directory that does not exist. Its records are texts that begin with "v1 ".
func newFile(t *testing.T) *File[string] {
	return &File[string]{
		Path: filepath.Join(t.TempDir(), "directory", "record"), MaxSize: maxSize,
		Encode: func(text string) ([]byte, error) {
			if text == "" {
				return nil, errors.New("empty")
			}
			return []byte("v1 " + text), nil
		},
		Decode: func(data []byte) (string, error) {
			text, ok := bytes.CutPrefix(data, []byte("v1 "))
			if !ok {
				return "partial", errors.New("unknown version")
			}
			return string(text), nil
		},
	}
}

func (f *File[R]) expect(t *testing.T, want string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(f.Path))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); err != nil || got != want {
		t.Errorf("the directory has %q (%v), want %q", got, err, want)
	}
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	f := newFile(t)
	for _, text := range []string{"", "first", "second", strings.Repeat("x", maxSize-len("v1 "))} {
		if text != "" {
			if err := f.Save(text); err != nil {
				t.Fatal(err)
			}
			f.expect(t, "record")
		}
		if got, err := f.Load(); err != nil || got != text {
			t.Errorf("loaded %q, %v, want %q", got, err, text)
		}
	}
	info, err := os.Stat(f.Path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestWhatCannotBeSavedChangesNothing(t *testing.T) {
	f := newFile(t)
	if err := f.Save("first"); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", strings.Repeat("x", maxSize)} {
		if err := f.Save(text); err == nil {
			t.Errorf("%q is saved", text)
		}
	}
	// A directory that is not empty in the place of the temporary file.
	if err := os.MkdirAll(filepath.Join(f.Path+temporarySuffix, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Save("second"); err == nil {
		t.Error("a record is saved without a temporary file")
	}
	if got, err := f.Load(); err != nil || got != "first" {
		t.Errorf("loaded %q, %v", got, err)
	}
}

// A temporary file that a killed agent has left, whatever its mode, is overwritten, and one that cannot be renamed is
// removed.
func TestTemporaryFile(t *testing.T) {
	f := newFile(t)
	temporary := f.Path + temporarySuffix
	err := errors.Join(os.Mkdir(filepath.Dir(f.Path), 0o700), os.WriteFile(temporary, []byte("longer than that"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Save("next"); err != nil {
		t.Fatal(err)
	}
	f.expect(t, "record")
	if info, err := os.Stat(f.Path); err != nil || info.Mode() != 0o600 || info.Size() != int64(len("v1 next")) {
		t.Errorf("%v, %v", info, err)
	}
	if err := errors.Join(os.Remove(f.Path), os.Mkdir(f.Path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := f.Save("next"); err == nil {
		t.Error("a directory is replaced")
	}
	f.expect(t, "record")
}

func TestRejectedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"empty":     {func(path string) error { return os.WriteFile(path, nil, 0o600) }, "unknown version"},
		"too large": {func(path string) error { return os.WriteFile(path, make([]byte, maxSize+1), 0o600) }, "size: "},
		"directory": {func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) }, "no regular file"},
		"pipe":      {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFile(t)
			if err := errors.Join(os.Mkdir(filepath.Dir(f.Path), 0o700), c.make(f.Path)); err != nil {
				t.Fatal(err)
			}
			got, err := f.Load()
			rejected := (*RejectedError)(nil)
			if got != "" || !errors.As(err, &rejected) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("loaded %q, %v, want an error with %q", got, err, c.want)
			}
			f.expect(t, filepath.Base(rejected.RenamedTo))
			if got, err := f.Load(); got != "" || err != nil {
				t.Errorf("after that %q, %v", got, err)
			}
		})
	}
}

// The error of a rejected file that cannot be renamed has both reasons.
func TestRejectedFileThatCannotBeRenamed(t *testing.T) {
	f := newFile(t)
	err := errors.Join(os.MkdirAll(f.Path+rejectedSuffix, 0o700), os.WriteFile(f.Path, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Load()
	if !errors.As(err, new(*RejectedError)) || !strings.Contains(err.Error(), "unknown version") ||
		!errors.As(err, new(*os.LinkError)) {
		t.Errorf("%v", err)
	}
}

// A file that cannot be read for the time being is not rejected. A link to itself is an error of the file system.
func TestErrorThatMayPass(t *testing.T) {
	f := newFile(t)
	if err := errors.Join(os.Mkdir(filepath.Dir(f.Path), 0o700), os.Symlink(f.Path, f.Path)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); err == nil || errors.As(err, new(*RejectedError)) {
		t.Errorf("%v", err)
	}
	f.expect(t, "record")
}
