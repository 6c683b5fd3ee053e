package housekeeping

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"k8s.io/mount-utils"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
)

func pathsBelow(root string) paths.Layout { return paths.New(root, filepath.Join(root, "logs")) }

// With the real mounter, bind mounts of a directory and of a file in the same file system are kept until they are
// unmounted.
func TestRealMountsAreKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root, to mount")
	}
	n := newNode(t)
	data := t.TempDir()
	dataFile := write(t, data, "file")
	dir := mkdir(t, n.layout.PodPlugin("uid", "p"), "target")
	file := write(t, n.layout.PodVolumeSubpaths("uid"), "v", "c", "0")
	unmount := func() {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		_ = syscall.Unmount(file, syscall.MNT_DETACH)
	}
	t.Cleanup(unmount)
	if err := syscall.Mount(data, dir, "", syscall.MS_BIND, ""); err != nil {
		t.Fatalf("this machine does not permit mounts: %v", err)
	}
	if err := syscall.Mount(dataFile, file, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	c := n.config()
	c.Disk = NewDisk(n.layout, mount.New(""), n)
	if err := New(c).CleanUp(context.Background()); err != nil {
		t.Errorf("while mounted: %v", err)
	}
	if !exists(dataFile) || !exists(file) || !exists(filepath.Join(dir, "file")) {
		t.Fatal("a file below a mount point was removed")
	}
	unmount()
	if err := New(c).CleanUp(context.Background()); err != nil {
		t.Errorf("after unmounting: %v", err)
	}
	if exists(n.layout.Pod("uid")) || !exists(dataFile) {
		t.Errorf("directory exists: %t, data exists: %t", exists(n.layout.Pod("uid")), exists(dataFile))
	}
}
