package housekeeping

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/mount-utils"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/test/fixture"
)

func mkdir(t testing.TB, elem ...string) string {
	t.Helper()
	dir := filepath.Join(elem...)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, elem ...string) string {
	t.Helper()
	file := filepath.Join(elem...)
	mkdir(t, filepath.Dir(file))
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// emptyDir returns the path of an emptyDir volume.
func emptyDir(n *node, uid types.UID, name string) string {
	return n.layout.PodVolume(uid, "kubernetes.io~empty-dir", name)
}

func TestOrphanDirectories(t *testing.T) {
	for _, tc := range []struct {
		name  string
		make  func(*testing.T, *node)
		stays bool
		error string
	}{
		{name: "empty", make: func(t *testing.T, n *node) { mkdir(t, n.layout.Pod("uid")) }},
		{name: "leftovers of a stopped pod", make: func(t *testing.T, n *node) {
			mkdir(t, emptyDir(n, "uid", "cache"))
			mkdir(t, n.layout.PodVolume("uid", "kubernetes.io~csi", "pvc"))
			mkdir(t, n.layout.PodVolume("uid", "kubernetes.io~csi", "other"), "mount")
			mkdir(t, n.layout.PodVolumeSubpaths("uid"), "cache", "c", "0")
			write(t, n.layout.PodVolumeSubpaths("uid"), "cache", "c", "1")
			write(t, n.layout.PodPlugin("uid", "kubernetes.io~empty-dir"), "wrapped_cache", "ready")
			write(t, n.layout.PodContainer("uid", "c"), "termination-log")
			write(t, n.layout.EtcHosts("uid"))
		}},
		{name: "pod is configured", stays: true, make: func(t *testing.T, n *node) {
			mkdir(t, n.layout.Pod("uid"))
			n.pods = []*v1.Pod{fixture.Pod("uid")}
		}},
		{name: "pod is running", stays: true, make: func(t *testing.T, n *node) {
			mkdir(t, n.layout.Pod("uid"))
			n.running = []*kubecontainer.Pod{runtimePod("uid")}
		}},
		{name: "volume manager has volumes", stays: true, make: func(t *testing.T, n *node) {
			mkdir(t, n.layout.Pod("uid"))
			n.mounted.Insert("uid")
		}},
		{name: "volume is mounted", stays: true, make: func(t *testing.T, n *node) {
			n.mounter.MountPoints = []mount.MountPoint{{Path: mkdir(t, emptyDir(n, "uid", "mem"))}}
		}},
		{name: "CSI volume is mounted", stays: true, make: func(t *testing.T, n *node) {
			n.mounter.MountPoints = []mount.MountPoint{
				{Path: mkdir(t, n.layout.PodVolume("uid", "kubernetes.io~csi", "pvc"), "mount")},
			}
		}},
		{name: "mount cannot be checked", stays: true, make: func(t *testing.T, n *node) {
			n.mounter.MountCheckErrors = map[string]error{mkdir(t, emptyDir(n, "uid", "nfs")): errTest}
		}},
		{name: "file is mounted", stays: true, make: func(t *testing.T, n *node) {
			n.mounter.MountPoints = []mount.MountPoint{{Path: write(t, n.layout.PodContainer("uid", "c"), "log")}}
		}},
		{name: "data in a volume that is not mounted", stays: true, error: "failed to rmdir() volume at path",
			make: func(t *testing.T, n *node) {
				write(t, emptyDir(n, "uid", "cache"), "file")
			}},
		{name: "file among the plugins", stays: true, make: func(t *testing.T, n *node) {
			write(t, n.layout.PodVolumes("uid"), "stray")
		}},
		{name: "file among the volumes", stays: true, error: "failed to rmdir() volume at path",
			make: func(t *testing.T, n *node) {
				write(t, n.layout.PodVolumes("uid"), "kubernetes.io~empty-dir", "stray")
			}},
		{name: "data in a subpath", stays: true, error: "failed to remove subpath at path",
			make: func(t *testing.T, n *node) {
				write(t, n.layout.PodVolumeSubpaths("uid"), "cache", "c", "0", "file")
			}},
		{name: "subpaths cannot be read", stays: true, error: "not a directory", make: func(t *testing.T, n *node) {
			write(t, n.layout.PodVolumeSubpaths("uid"), "stray")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			tc.make(t, n)
			err := cleanUp(t, n)
			if tc.error == "" && err != nil || tc.error != "" && (err == nil || !strings.Contains(err.Error(), tc.error)) {
				t.Errorf("error %v", err)
			}
			if got := exists(n.layout.Pod("uid")); got != tc.stays {
				t.Errorf("directory exists: %t", got)
			}
		})
	}
}

func TestUnreadableMountTableRemovesNothing(t *testing.T) {
	n := newNode(t)
	dir := mkdir(t, n.layout.Pod("uid"))
	c := n.config()
	c.Disk = NewDisk(n.layout, unreadableMountTable{n.mounter}, n)
	if err := New(c).CleanUp(context.Background()); !errors.Is(err, errTest) || !exists(dir) {
		t.Errorf("got %v, directory exists: %t", err, exists(dir))
	}
}

// unreadableMountTable is a mounter whose List fails.
type unreadableMountTable struct{ *mount.FakeMounter }

func (unreadableMountTable) List() ([]mount.MountPoint, error) { return nil, errTest }

func TestErrorsOfOrphanDirectoriesAreSummarized(t *testing.T) {
	n := newNode(t)
	for i := range 5 {
		write(t, emptyDir(n, types.UID(fmt.Sprint(i)), "v"), "file")
	}
	err := cleanUp(t, n)
	if err == nil || strings.Count(err.Error(), "orphaned pod ") != 2 ||
		!strings.Contains(err.Error(), "and 4 similar errors") {
		t.Errorf("got %v", err)
	}
}

func TestSymbolicLinksAreNotFollowed(t *testing.T) {
	for name, place := range map[string]func(n *node) string{
		"volumes":   func(n *node) string { return n.layout.PodVolumes("uid") },
		"plugin":    func(n *node) string { return filepath.Join(n.layout.PodVolumes("uid"), "plugin") },
		"volume":    func(n *node) string { return emptyDir(n, "uid", "v") },
		"subpaths":  func(n *node) string { return n.layout.PodVolumeSubpaths("uid") },
		"subpath":   func(n *node) string { return filepath.Join(n.layout.PodVolumeSubpaths("uid"), "v") },
		"container": func(n *node) string { return n.layout.PodContainer("uid", "c") },
		"hosts":     func(n *node) string { return n.layout.EtcHosts("uid") },
	} {
		n := newNode(t)
		target := t.TempDir()
		mkdir(t, target, "a", "b", "c")
		file := write(t, target, "file")
		link := place(n)
		mkdir(t, filepath.Dir(link))
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		_ = cleanUp(t, n)
		if !exists(file) || !exists(filepath.Join(target, "a", "b", "c")) {
			t.Errorf("%s: the target of the link was removed", name)
		}
	}
}

// partialMounter detects mounts by one of the two methods, or by both, since on some kernels one of them misses mounts.
type partialMounter struct {
	*mount.FakeMounter
	table, single bool
}

func (s partialMounter) List() ([]mount.MountPoint, error) {
	if !s.table {
		return nil, nil
	}
	return s.FakeMounter.List()
}

func (s partialMounter) IsLikelyNotMountPoint(path string) (bool, error) {
	if !s.single {
		return true, nil
	}
	return s.FakeMounter.IsLikelyNotMountPoint(path)
}

// For any content of the directories of orphans, nothing at or below a mount point is removed, and no directory of a
// configured pod.
func TestOrphanDirectoriesBelowMountPointsAreKept(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		root, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			r.Fatal(err)
		}
		n := newNode(t)
		n.layout = pathsBelow(root)
		mkdir(t, n.layout.Pods())
		var protected []string
		for i := range rapid.IntRange(1, 3).Draw(r, "pods") {
			uid := types.UID(fmt.Sprintf("pod%d", i))
			files := drawTree(r, t, n, uid)
			if rapid.Bool().Draw(r, "configured") {
				n.pods = append(n.pods, fixture.Pod(string(uid)))
				protected = append(protected, files...)
			}
			protected = append(protected, drawMounts(r, n, files)...)
		}
		m := partialMounter{FakeMounter: n.mounter, table: rapid.Bool().Draw(r, "table")}
		m.single = !m.table || rapid.Bool().Draw(r, "single")
		c := n.config()
		c.Disk = NewDisk(n.layout, m, n)
		for range 2 {
			_ = New(c).CleanUp(context.Background())
		}
		for _, f := range protected {
			if !exists(f) {
				r.Fatalf("%s is removed; mounts %v", f, n.mounter.MountPoints)
			}
		}
	})
}

// drawTree fills a pod's directory with files at random depths in the directories that pods have, and an empty
// directory. It returns the paths of both.
func drawTree(r *rapid.T, t *testing.T, n *node, uid types.UID) []string {
	places := []string{
		n.layout.PodVolumes(uid), n.layout.PodVolume(uid, "kubernetes.io~empty-dir", "v"),
		n.layout.PodVolume(uid, "kubernetes.io~csi", "pvc"),
		n.layout.PodVolumeSubpaths(uid), n.layout.PodPlugins(uid), n.layout.PodContainer(uid, "c"),
		n.layout.PodVolumeDevices(uid), n.layout.Pod(uid),
	}
	name := rapid.SampledFrom([]string{"a", "b", "mount", "volumes", "0"})
	var files []string
	for range rapid.IntRange(0, 5).Draw(r, "files") {
		elem := append([]string{rapid.SampledFrom(places).Draw(r, "place")}, rapid.SliceOfN(name, 0, 3).Draw(r, "path")...)
		file := filepath.Join(append(elem, "file")...)
		if os.MkdirAll(filepath.Dir(file), 0o750) == nil && os.WriteFile(file, nil, 0o600) == nil {
			files = append(files, file)
		}
	}
	return append(files, mkdir(t, rapid.SampledFrom(places[:7]).Draw(r, "place"), "empty"))
}

// drawMounts makes parents of some files mount points, and returns the files below them.
func drawMounts(r *rapid.T, n *node, files []string) []string {
	var below []string
	for _, f := range files {
		if !rapid.Bool().Draw(r, "mounted") {
			continue
		}
		at := filepath.Dir(f)
		for range rapid.IntRange(0, 2).Draw(r, "up") {
			if up := filepath.Dir(at); len(up) > len(n.layout.Pods()) {
				at = up
			}
		}
		n.mounter.MountPoints = append(n.mounter.MountPoints, mount.MountPoint{Path: at})
		for _, other := range files {
			if strings.HasPrefix(other, at+"/") && !slices.Contains(below, other) {
				below = append(below, other)
			}
		}
	}
	return below
}

func TestMountTableWithEscapedPaths(t *testing.T) {
	n := newNode(t)
	n.layout = pathsBelow(filepath.Join(t.TempDir(), "my root\\dir"))
	dir := mkdir(t, n.layout.Pod("uid"), "plugins", "x")
	n.mounter.MountPoints = []mount.MountPoint{{Path: strings.NewReplacer(" ", `\040`, `\`, `\134`).Replace(dir)}}
	if err := cleanUp(t, n); err != nil || !exists(dir) {
		t.Errorf("got %v, directory exists: %t", err, exists(dir))
	}
}

func TestMountTableWithASymbolicLinkToTheRoot(t *testing.T) {
	n := newNode(t)
	target := t.TempDir()
	link := filepath.Join(t.TempDir(), "kubelet")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	n.layout = pathsBelow(link)
	mkdir(t, n.layout.Pod("uid"), "plugins", "x")
	n.mounter.MountPoints = []mount.MountPoint{{Path: filepath.Join(target, "pods", "uid", "plugins", "x")}}
	if err := cleanUp(t, n); err != nil || !exists(n.layout.Pod("uid")) {
		t.Errorf("got %v", err)
	}
}
