package directories

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
)

// configFor is the configuration for a new root directory. shared records what is made a shared mount.
func configFor(t *testing.T, shared *[]string) Config {
	t.Helper()
	top := t.TempDir()
	return Config{
		Layout:            paths.New(filepath.Join(top, "kubelet"), filepath.Join(top, "pods")),
		ContainerLogLinks: filepath.Join(top, "containers"),
		MakeShared:        func(path string) error { *shared = append(*shared, path); return nil },
	}
}

func TestCreate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022)) // modes are those that are asked for less the umask
	for _, checkpoints := range []bool{false, true} {
		var shared []string
		c := configFor(t, &shared)
		c.Checkpoints = checkpoints
		for range 2 { // directories that exist are no error
			if err := Create(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		for path, mode := range map[string]os.FileMode{
			c.Layout.Root(): 0o750, c.Layout.PodLogs(): 0o750, c.Layout.Pods(): 0o750, c.Layout.Plugins(): 0o750,
			c.Layout.PluginsRegistry(): 0o750, c.Layout.PodResources(): 0o750, c.ContainerLogLinks: 0o755,
			c.Layout.Terminations(): 0o750,
		} {
			if found, err := os.Stat(path); err != nil || found.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", path, found, err)
			}
		}
		found, err := os.Stat(c.Layout.Checkpoints())
		if (err == nil) != checkpoints || err == nil && found.Mode().Perm() != 0o700 {
			t.Errorf("checkpoints %t: %v, %v", checkpoints, found, err)
		}
		if len(shared) != 2 || shared[0] != c.Layout.Root() {
			t.Errorf("shared mounts %q", shared)
		}
	}
}

func TestCreateReportsWhatCannotBeCreated(t *testing.T) {
	var shared []string
	c := configFor(t, &shared)
	if err := os.WriteFile(c.ContainerLogLinks, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Create(t.Context(), c); err == nil || !strings.Contains(err.Error(), c.ContainerLogLinks) {
		t.Errorf("error %v", err)
	}
	c = configFor(t, &shared)
	refused := errors.New("not a mount point")
	c.MakeShared = func(string) error { return refused }
	if err := Create(context.Background(), c); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
}

// The agent starts without a place for files of its own: the disk is full, or another file is in the way.
func TestOwnDirectoriesAreNotNeeded(t *testing.T) {
	var shared []string
	c := configFor(t, &shared)
	if err := os.MkdirAll(c.Layout.Root(), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Layout.Own(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Create(t.Context(), c); err != nil {
		t.Error(err)
	}
}
