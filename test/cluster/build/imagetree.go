package build

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// leftOut are the parts of a root file system that an image does not need: those that the kernel provides, and
// documentation.
var leftOut = []string{
	"dev", "proc", "sys", "run", "var/cache/apt", "var/lib/apt", "usr/share/doc", "usr/share/man", "usr/share/locale",
}

// tree adds everything below root with its modes and owners.
func (w *layerWriter) tree(root string) {
	if root == "" || w.err != nil {
		return
	}
	w.err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || name == "." {
			return err
		}
		if err := w.copyEntry(name, path); err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains(leftOut, name) {
			return fs.SkipDir
		}
		return nil
	})
}

func (w *layerWriter) copyEntry(name, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	header, data, err := describeEntry(path, info)
	if err != nil || header == nil {
		return err
	}
	header.Name = name
	if info.IsDir() {
		w.dirs[name] = true
		header.Name += "/"
	}
	w.entry(header, data)
	return w.err
}

// describeEntry returns nil for files that an image cannot hold, such as sockets.
func describeEntry(path string, info fs.FileInfo) (*tar.Header, []byte, error) {
	header := &tar.Header{Mode: int64(info.Mode().Perm()) | specialBits(info.Mode())}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		header.Uid, header.Gid = int(stat.Uid), int(stat.Gid)
	}
	switch {
	case info.IsDir():
		header.Typeflag = tar.TypeDir
		return header, nil, nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		header.Typeflag, header.Linkname = tar.TypeSymlink, target
		return header, nil, err
	case info.Mode().IsRegular():
		data, err := os.ReadFile(path)
		header.Typeflag, header.Size = tar.TypeReg, int64(len(data))
		return header, data, err
	}
	return nil, nil, nil
}

func specialBits(mode fs.FileMode) int64 {
	var bits int64
	for special, bit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&special != 0 {
			bits |= bit
		}
	}
	return bits
}
