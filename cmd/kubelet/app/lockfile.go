package app

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/util/flock"
	"k8s.io/utils/inotify"
)

// errLockContention ends the run without an error: another agent has opened the lock file and waits for it.
var errLockContention = errors.New("another process has opened the lock file")

// lock acquires the lock file and, with --exit-on-lock-contention, ends the run when another process opens it.
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
	go p.watchLock(ctx, watcher)
	return nil
}

// watchLock ends the run at the first event or error.
func (p *process) watchLock(ctx context.Context, watcher *inotify.Watcher) {
	logger := klog.FromContext(ctx)
	select {
	case event := <-watcher.Event:
		logger.Info("Inotify event", "event", event)
	case err := <-watcher.Error:
		logger.Error(err, "Inotify watcher failed")
	case <-ctx.Done():
	}
	p.cancel(errLockContention)
	_ = watcher.Close() // the process ends
}
