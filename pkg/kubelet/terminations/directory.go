package terminations

import (
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	utilstore "k8s.io/kubernetes/pkg/kubelet/util/store"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
)

const (
	suffix = ".json"
	// rejectedSuffix marks a file that could not be read as a record.
	rejectedSuffix = ".rejected"
	// temporaryPrefix is how file stores name what they have not finished.
	temporaryPrefix = "."
)

func fileName(uid types.UID) string { return string(uid) + suffix }

// uidOf returns whose record the file is, false if it is no record.
func uidOf(name string) (types.UID, bool) {
	uid, ok := strings.CutSuffix(name, suffix)
	return types.UID(uid), ok && !strings.HasPrefix(name, temporaryPrefix)
}

// directory is where the files are. It is made when it is first needed, and again should somebody remove it.
type directory struct {
	path  string
	fs    utilfs.Filesystem
	files utilstore.Store
}

// open returns the files, by a store that writes each as a whole or not at all.
func (d *directory) open() (utilstore.Store, error) {
	if d.files == nil {
		files, err := utilstore.NewFileStore(d.path, d.fs)
		if err != nil {
			return nil, err
		}
		d.files = files
	}
	return d.files, nil
}

// write replaces a file. Without an error it survives the loss of power.
func (d *directory) write(uid types.UID, data []byte) error {
	files, err := d.open()
	if err != nil {
		return err
	}
	if err := files.Write(fileName(uid), data); err != nil {
		return err
	}
	return d.sync()
}

// remove removes a file; it is no error if there is none.
func (d *directory) remove(uid types.UID) error {
	files, err := d.open()
	if err != nil {
		return err
	}
	return files.Delete(fileName(uid))
}

// sync makes the renames in the directory last.
func (d *directory) sync() error {
	dir, err := os.Open(d.path)
	if err != nil {
		return err
	}
	err = dir.Sync()
	if closed := dir.Close(); err == nil {
		err = closed
	}
	return err
}

// reject sets a file aside, so that it is not read again and somebody can look at it.
func (d *directory) reject(name string) error {
	path := filepath.Join(d.path, name)
	return d.fs.Rename(path, path+rejectedSuffix)
}
