package vm

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// guest has the files of the image that are neither of a package nor built, by their paths in the machine.
//
//go:embed all:guest
var guest embed.FS

// links are the symbolic links of the image: units that are started, and such that cost time and serve nobody here.
var links = map[string]string{
	"/etc/systemd/system/default.target":                                   "/usr/lib/systemd/system/multi-user.target",
	"/etc/systemd/system/multi-user.target.wants/node-network.service":     "/usr/lib/systemd/system/node-network.service",
	"/etc/systemd/system/network-online.target.wants/node-network.service": "/usr/lib/systemd/system/node-network.service",
	"/etc/systemd/system/multi-user.target.wants/containerd.service":       "/usr/lib/systemd/system/containerd.service",
	"/etc/systemd/system/multi-user.target.wants/kubelet.service":          "/usr/lib/systemd/system/kubelet.service",
	"/usr/bin/kubelet":                         "/opt/node/kubelet-stock",
	"/usr/local/bin/kubelet-plimsoll":          "/opt/node/kubelet",
	"/etc/systemd/system/getty.target":         "/dev/null",
	"/etc/systemd/system/timers.target.wants":  "/dev/null",
	"/etc/systemd/system/e2scrub_reap.service": "/dev/null",
	"/etc/systemd/system/modprobe@drm.service": "/dev/null",
}

// addGuest writes the embedded files and the links into the tree of an image.
func addGuest(tree string) error {
	err := fs.WalkDir(guest, "guest", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := guest.ReadFile(path)
		if err != nil {
			return err
		}
		return file{data: data, mode: modeOf(path)}.write(filepath.Join(tree, strings.TrimPrefix(path, "guest")))
	})
	if err != nil {
		return fmt.Errorf("write files of the image: %w", err)
	}
	for name, target := range links {
		if err := link(filepath.Join(tree, name), target); err != nil {
			return err
		}
	}
	return nil
}

// modeOf returns the mode of an embedded file: embedding does not keep it.
func modeOf(path string) fs.FileMode {
	if strings.HasPrefix(path, "guest/usr/sbin/") {
		return 0o755
	}
	return 0o644
}

// file is a file of the machine.
type file struct {
	data []byte
	mode fs.FileMode
}

func (f file) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.WriteFile(path, f.data, f.mode); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// link makes a symbolic link, in the place of anything that is there.
func link(path, target string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("replace by a link: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("make link: %w", err)
	}
	return nil
}

// CopyFile copies a program or an archive, with its mode. It makes the folder of target.
func CopyFile(source, target string) error {
	in, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("copy file: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("copy file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	out, err := os.OpenFile(target, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return fmt.Errorf("copy file: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", source, err)
	}
	return nil
}

// sum returns the digest of texts and of the content of files.
func sum(texts, files []string) (string, error) {
	hash := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(hash, "%d %s", len(text), text)
	}
	for _, name := range files {
		in, err := os.Open(name)
		if err != nil {
			return "", fmt.Errorf("digest of the image: %w", err)
		}
		fmt.Fprintf(hash, "file %s", filepath.Base(name))
		_, err = io.Copy(hash, in)
		in.Close()
		if err != nil {
			return "", fmt.Errorf("digest of the image: %w", err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// makeDisk writes a file system of at most size bytes with the content of tree. The file is sparse.
func makeDisk(tree, disk string, size int64) error {
	if err := os.RemoveAll(disk); err != nil {
		return fmt.Errorf("remove old disk: %w", err)
	}
	return run("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-d", tree, disk, fmt.Sprintf("%dK", size>>10))
}

// removeTree removes a tree in which nothing may be mounted.
func removeTree(tree string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], tree+"/") {
			if err := unix.Unmount(fields[4], unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", fields[4], err)
			}
		}
	}
	if err := os.RemoveAll(tree); err != nil {
		return fmt.Errorf("remove tree of the image: %w", err)
	}
	return nil
}
