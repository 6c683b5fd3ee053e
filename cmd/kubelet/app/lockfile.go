package app

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/util/flock"
	"k8s.io/utils/inotify"
)

// errLockWanted ends the process in good order: another agent has opened the lock file and is waiting for this one to
// go.
var errLockWanted = errors.New("another process wants the lock file")

// lock waits for the lock file and, with --exit-on-lock-contention, gives way to the next process that opens it.
func (p *process) lock(ctx context.Context) error {
	path := p.settings.Flags.LockFilePath
	if path == "" {
		return nil
	}
	logger := klog.FromContext(ctx)
	logger.Info("Acquiring file lock", "path", path)
	if err := flock.Acquire(path); err != nil {
		return fmt.Errorf("unable to acquire file lock on --lock-file %q: %w", path, err)
	}
	if !p.settings.Flags.ExitOnLockContention {
		return nil
	}
	logger.Info("Watching for inotify events", "path", path)
	watcher, err := inotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch --lock-file %q: %w", path, err)
	}
	if err := watcher.AddWatch(path, inotify.InOpen|inotify.InDeleteSelf); err != nil {
		return errors.Join(fmt.Errorf("watch --lock-file %q: %w", path, err), watcher.Close())
	}
	go p.giveWay(ctx, watcher)
	return nil
}

// giveWay ends the run at the first event or error, and not before.
func (p *process) giveWay(ctx context.Context, watcher *inotify.Watcher) {
	logger := klog.FromContext(ctx)
	select {
	case event := <-watcher.Event:
		logger.Info("Inotify event", "event", event)
	case err := <-watcher.Error:
		logger.Error(err, "inotify watcher error")
	case <-ctx.Done():
	}
	p.cancel(errLockWanted)
	_ = watcher.Close() // the process ends
}
