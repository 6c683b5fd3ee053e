package terminations

import (
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	utilstore "k8s.io/kubernetes/pkg/kubelet/util/store"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/recordfile"
)

const (
	suffix = ".json"
	// rejectedSuffix is the suffix of files that are not valid records.
	rejectedSuffix = ".rejected"
	// temporaryPrefix is the prefix of incomplete files of utilstore.FileStore.
	temporaryPrefix = "."
)

func fileName(uid types.UID) string { return string(uid) + suffix }

// uidOf returns the UID of the pod whose record the file is, false if its name is not that of a record.
func uidOf(name string) (types.UID, bool) {
	uid, ok := strings.CutSuffix(name, suffix)
	return types.UID(uid), ok && !strings.HasPrefix(name, temporaryPrefix)
}

// directory is the directory of the records. It is created at the first write, and again if it was deleted meanwhile.
type directory struct {
	path  string
	fs    utilfs.Filesystem
	files utilstore.Store
}

// open returns a file store, which writes each file atomically.
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

// write replaces a file. If it returns no error, the file is durable: it survives a power failure.
func (d *directory) write(uid types.UID, data []byte) error {
	files, err := d.open()
	if err != nil {
		return err
	}
	if err := files.Write(fileName(uid), data); err != nil {
		return err
	}
	return recordfile.SyncDirectory(d.path)
}

// remove deletes a file; it is no error if the file does not exist.
func (d *directory) remove(uid types.UID) error {
	files, err := d.open()
	if err != nil {
		return err
	}
	return files.Delete(fileName(uid))
}

// reject renames a file so that it is not read again, and is kept for inspection.
func (d *directory) reject(name string) error {
	path := filepath.Join(d.path, name)
	return d.fs.Rename(path, path+rejectedSuffix)
}
