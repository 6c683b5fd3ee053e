package pressureconfig

import (
	"context"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// watch reports changes in the directory of a file, and in that of what the file is a link to. Directories are watched
// and not the file: it may be replaced by renaming, and in a mounted ConfigMap it is a link by way of a link (..data)
// that is replaced.
type watch struct {
	file    string
	watcher *fsnotify.Watcher
	dirs    map[string]bool
}

// newWatch makes a watch. Without inotify it never reports anything, and the file is polled.
func newWatch(ctx context.Context, file string) *watch {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Pressure configuration: no notifications of the file, it is read from time to time",
			"file", file)
		watcher = nil
	}
	w := &watch{file: file, watcher: watcher, dirs: map[string]bool{}}
	w.follow(ctx)
	return w
}

// follow watches the directories that matter now. Those that do not exist are tried again with the next poll.
func (w *watch) follow(ctx context.Context) {
	if w.watcher == nil {
		return
	}
	wanted := map[string]bool{filepath.Dir(w.file): true}
	if target, err := filepath.EvalSymlinks(w.file); err == nil {
		wanted[filepath.Dir(target)] = true
	}
	for dir := range w.dirs {
		if !wanted[dir] {
			_ = w.watcher.Remove(dir) // it is gone, or of no interest
			delete(w.dirs, dir)
		}
	}
	for dir := range wanted {
		// Adding a directory again does nothing, unless another one has taken its place.
		if err := w.watcher.Add(dir); err != nil {
			klog.FromContext(ctx).V(4).Info("Pressure configuration: cannot watch the directory", "dir", dir, "err", err)
			delete(w.dirs, dir)
			continue
		}
		w.dirs[dir] = true
	}
}

// concerns leaves out what changes nothing in a file.
func (w *watch) concerns(e fsnotify.Event) bool { return e.Op != fsnotify.Chmod }

// events and errors are nil, which blocks for ever, without a watcher.
func (w *watch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *watch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
		w.watcher = nil
	}
}
