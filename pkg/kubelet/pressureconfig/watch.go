package pressureconfig

import (
	"context"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// fileWatch reports changes in the directory of a file, and in that of its target if the file is a symbolic link. It
// watches directories and not the file, because the file may be replaced by renaming, and in a mounted ConfigMap it is
// a link through another link (..data) that is replaced.
type fileWatch struct {
	file    string
	watcher *fsnotify.Watcher
	dirs    map[string]bool
}

// newFileWatch returns a watch. Without inotify it never reports anything, and the file is polled.
func newFileWatch(ctx context.Context, file string) *fileWatch {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch the pressure configuration, polling it", "file", file,
			"period", pollPeriod)
		watcher = nil
	}
	w := &fileWatch{file: file, watcher: watcher, dirs: map[string]bool{}}
	w.update(ctx)
	return w
}

// update updates the set of watched directories. Those that do not exist are tried again with the next poll.
func (w *fileWatch) update(ctx context.Context) {
	if w.watcher == nil {
		return
	}
	wanted := map[string]bool{filepath.Dir(w.file): true}
	if target, err := filepath.EvalSymlinks(w.file); err == nil {
		wanted[filepath.Dir(target)] = true
	}
	for dir := range w.dirs {
		if !wanted[dir] {
			_ = w.watcher.Remove(dir) // it may have been removed
			delete(w.dirs, dir)
		}
	}
	for dir := range wanted {
		// Adding a directory again has no effect, unless the directory was replaced.
		if err := w.watcher.Add(dir); err != nil {
			klog.FromContext(ctx).V(4).Info("Cannot watch the directory of the pressure configuration", "dir", dir, "err", err)
			delete(w.dirs, dir)
			continue
		}
		w.dirs[dir] = true
	}
}

// isRelevant is false for events that do not change the content of a file.
func (w *fileWatch) isRelevant(e fsnotify.Event) bool { return e.Op != fsnotify.Chmod }

// events and errors return nil, which blocks forever, without a watcher.
func (w *fileWatch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *fileWatch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

func (w *fileWatch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
		w.watcher = nil
	}
}
