package notice

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

const (
	suffix = ".soft_eviction_notify.json"
	// temporary is the beginning of the names of files that are being written.
	temporary = ".tmp-"
	// The permissions of the directory decide who may read the files in it.
	directoryMode, fileMode = 0o750, 0o644
	// maxFileName is the longest name of a file in bytes (NAME_MAX).
	maxFileName = 255
)

// form is the form of the names of files. It has no place for a separator of paths, and no other files are touched.
var form = regexp.MustCompile(`^[a-z0-9-]{1,63}_[a-z0-9.-]{1,253}_[A-Za-z0-9-]{1,128}\.soft_eviction_notify\.json$`)

// temporaryForm is the form of the names of files that are being written. An agent that was killed leaves such files.
var temporaryForm = regexp.MustCompile(`^\.tmp-[0-9]+\.soft_eviction_notify\.json$`)

// Files writes notice files. The zero value is ready to use. Calls for one directory must not overlap.
type Files struct{}

// Write makes the files of the directory those of the notices: it writes files that are missing or differ, and
// removes the others of their form. It creates the directory if it does not exist and there are notices. It joins
// the errors of all files.
func (Files) Write(directory string, notices []debugv1alpha1.PluginNotice) error {
	if len(notices) > 0 {
		if err := os.MkdirAll(directory, directoryMode); err != nil {
			return fmt.Errorf("directory of notice files: %w", err)
		}
	}
	var errs []error
	wanted := map[string]bool{}
	for i := range notices {
		name, err := fileName(&notices[i])
		if err == nil {
			wanted[name] = true
			err = write(filepath.Join(directory, name), &notices[i])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("notice of pod %s/%s: %w", notices[i].Namespace, notices[i].Name, err))
		}
	}
	return errors.Join(append(errs, removeOthers(directory, wanted))...)
}

// fileName returns the name of the file. A name of a pod that is too long for it is cut: the UID identifies the pod.
func fileName(n *debugv1alpha1.PluginNotice) (string, error) {
	pod := n.Name
	if rest := maxFileName - len(n.Namespace) - len(n.UID) - len(suffix) - len("__"); len(pod) > rest {
		pod = pod[:max(0, rest)]
	}
	name := fmt.Sprintf("%s_%s_%s%s", n.Namespace, pod, n.UID, suffix)
	if !form.MatchString(name) {
		return "", fmt.Errorf("namespace, name or UID %q is no valid part of the name of a file", n.UID)
	}
	return name, nil
}

// write replaces the file at path, unless it has this content.
func write(path string, n *debugv1alpha1.PluginNotice) (err error) {
	data, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if same(path, data) {
		return nil
	}
	file, err := os.CreateTemp(filepath.Dir(path), temporary+"*"+suffix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name()) // an error is not worth reporting beside err
		}
	}()
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(fileMode), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// same reports whether there is a regular file with this content.
func same(path string, data []byte) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(data)) {
		return false
	}
	old, err := os.ReadFile(path)
	return err == nil && bytes.Equal(old, data)
}

// removeOthers removes the files whose names have the form of notice files and that are not wanted, and those that
// were being written when an agent was killed.
func removeOthers(directory string, wanted map[string]bool) error {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		ours := form.MatchString(e.Name()) || temporaryForm.MatchString(e.Name())
		if !ours || wanted[e.Name()] || e.IsDir() {
			continue
		}
		if err := os.Remove(filepath.Join(directory, e.Name())); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
