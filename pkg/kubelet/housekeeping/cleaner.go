package housekeeping

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"
)

// Cleaner executes rounds of housekeeping. All methods except Wait are called by the goroutine of the sync loop.
type Cleaner struct {
	observer observer
	tasks    []task
	cgroups  *orphanCgroups
	mirrors  *mirrorPods
	// statuses and restarts are the tasks of RestartPods.
	statuses statuses
	restarts restarts
}

// New returns a Cleaner. It starts no goroutine.
func New(c Config) *Cleaner {
	cgroups := &orphanCgroups{cgroups: c.Cgroups, disk: c.Disk, workers: c.Workers}
	mirrors := &mirrorPods{client: c.Mirrors, pods: c.Pods, lifecycle: c.Lifecycle}
	return &Cleaner{
		observer: observer{c}, tasks: tasks(c, cgroups, mirrors), cgroups: cgroups, mirrors: mirrors,
		statuses: statuses{c.Statuses}, restarts: restartsOf(c),
	}
}

// CleanUp executes one round. It must not be called before all sources have reported: until then pods of the other
// sources would be regarded as orphaned. No new pods may be passed to the pod workers meanwhile. CleanUp does not
// block: pod workers stop pods, and goroutines remove cgroups and mirror pods. An error lists what failed in this
// round; the next one retries. If the runtime or the cgroups cannot be listed, nothing is removed, except for workers
// of finished pods.
func (c *Cleaner) CleanUp(ctx context.Context) error {
	r, err := c.observer.observe(ctx)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	var failed []error
	for _, t := range c.tasks {
		logger.V(3).Info("Clean up", "task", t.Name())
		if err := t.Run(ctx, r); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", t.Name(), err))
		}
	}
	return errors.Join(failed...)
}

// RestartPods executes the part of a round that is safe before all sources have reported, and that must not wait for
// that, because a static pod may be the API server, whose pods are missing. It starts pods again whose UID is
// configured again, and stops static pods that are not configured any more, since other static pods with the same name
// wait for that. It removes only statuses, so that a status of an earlier instance does not end the next one. It does
// not access the runtime.
func (c *Cleaner) RestartPods(ctx context.Context) error {
	r := &round{}
	r.pods, r.mirrorPods, r.orphanedMirrors = c.observer.Pods.GetPodsAndMirrorPods()
	r.known = c.observer.Workers.SyncStaticPods(r.pods)
	return errors.Join(c.statuses.Run(ctx, r), c.restarts.Run(ctx, r))
}

// Wait returns when no cgroup and no mirror pod is being removed. It must be called after the last call of CleanUp.
func (c *Cleaner) Wait() {
	c.mirrors.wait()
	c.cgroups.wait()
}

// task removes one kind of leftover of pods. If a task fails, the others run nevertheless.
type task interface {
	// Name describes what the task cleans up; it is the context of its errors.
	Name() string
	// Run acts on the state at the beginning of the round. It adds pods to r.known that it passes to the pod workers.
	Run(ctx context.Context, r *round) error
}

// tasks returns the tasks in the order in which they run.
func tasks(c Config, cgroups *orphanCgroups, mirrors *mirrorPods) []task {
	return []task{
		// First: probes of a terminated pod report it as not ready, and are the most expensive leftover.
		probes{c.Probes},
		// These remove entries in memory or in a checkpoint, in any order.
		statuses{c.Statuses},
		allocations{c.Allocations},
		userNamespaces{c.UserNamespaces},
		// Before pods are restarted, since a pod with the same UID uses the same directory.
		orphanDirs{disk: c.Disk, workers: c.Workers},
		mirrors,
		// After the pod workers have removed finished pods; restarts do not change the number of configured pods.
		countPods{c.Active},
		// The three tasks that pass pods to the workers. Restarts come first: a configured pod that still has containers of
		// an earlier instance is started, which takes over its containers, instead of being killed as an orphan by the last
		// task.
		restartsOf(c),
		terminatedPods{c.Workers},
		runtimeOrphans{c.Workers},
		// After these tasks, so that the metric includes their pods.
		countWorkers{},
		// After these tasks: the worker of a pod removes its cgroup.
		cgroups,
		backOff{c.BackOff},
	}
}
