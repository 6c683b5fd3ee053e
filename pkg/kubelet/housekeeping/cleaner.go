package housekeeping

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"
)

// Cleaner does one round of housekeeping after another. It is for one goroutine, that of the sync loop.
type Cleaner struct {
	observer observer
	tasks    []task
	cgroups  *orphanCgroups
	// statuses and restarts are those of the tasks that RestartPods does.
	statuses statuses
	restarts restarts
}

// New builds a Cleaner; nothing is started.
func New(c Config) *Cleaner {
	cgroups := &orphanCgroups{cgroups: c.Cgroups, disk: c.Disk}
	return &Cleaner{
		observer: observer{c}, tasks: tasks(c, cgroups), cgroups: cgroups, statuses: statuses{c.Statuses},
		restarts: restartsOf(c),
	}
}

// CleanUp does one round. Only to be called once every source has reported: until then pods that are wanted look like
// orphans. While it runs the pod workers must not be given new pods. It returns quickly: what takes time is left to the
// pod workers and to background removal of cgroups. An error says what could not be done in this round; the next one
// tries again. Without a view of the runtime or the cgroups nothing is removed at all, except what the pod workers
// decided already.
func (c *Cleaner) CleanUp(ctx context.Context) error {
	r, err := c.observer.observe(ctx)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	var failed []error
	for _, t := range c.tasks {
		logger.V(3).Info("Clean up", "task", t.Name())
		if err := t.Do(ctx, r); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", t.Name(), err))
		}
	}
	return errors.Join(failed...)
}

// RestartPods does what of a round is safe before every source has reported, and must not wait for it, because a static
// pod may be the API server that has not answered yet: it starts pods again that are wanted again, and drives static
// pods to their end that are not wanted any more, which others of their name wait for. Only statuses are removed, so
// that none of an earlier life ends the next one. It does not ask the runtime. The same goroutine calls it as CleanUp.
func (c *Cleaner) RestartPods(ctx context.Context) error {
	r := &round{}
	r.pods, r.mirrorPods, r.orphanedMirrors = c.observer.Pods.GetPodsAndMirrorPods()
	r.known = c.observer.Workers.SyncStaticPods(r.pods)
	return errors.Join(c.statuses.Do(ctx, r), c.restarts.Do(ctx, r))
}

// Wait returns when no cgroup is being removed in the background any more. To be called when CleanUp is not called any
// more.
func (c *Cleaner) Wait() { c.cgroups.wait() }

// task is one kind of leftover and what is done about it. A task that fails does not keep the others from running.
type task interface {
	// Name says what it cleans up; it is the context of its errors.
	Name() string
	// Do looks at the round's facts and acts. It may add to r.known what it gave to the pod workers.
	Do(ctx context.Context, r *round) error
}

// tasks lists them in the order in which they are done.
func tasks(c Config, cgroups *orphanCgroups) []task {
	return []task{
		// First: probes of a pod that has ended report it as unready, and cost the most.
		probes{c.Probes},
		// These only forget, in memory or in a checkpoint; the order among them does not matter.
		statuses{c.Statuses},
		allocations{c.Allocations},
		userNamespaces{c.UserNamespaces},
		// Before pods are started again, since a pod with the same UID uses the same directory.
		orphanDirs{disk: c.Disk},
		mirrorPods{client: c.Mirrors, holders: c.MirrorHolders},
		// Counted after the pod workers have dropped what has ended, and before restarts, which do not change what is wanted.
		countPods{c.Active},
		// The three that give pods to the workers. Restarts come first: a pod that is wanted and still has containers from an
		// earlier life is started, which takes over its containers, and not killed as an orphan by the last of them.
		restartsOf(c),
		endedPods{c.Workers},
		runtimeOrphans{c.Workers},
		// After them, so that the metric shows them.
		countWork{},
		// After the same three: the cgroup of a pod that was just given to the workers is theirs to remove.
		cgroups,
		backOff{c.BackOff},
	}
}
