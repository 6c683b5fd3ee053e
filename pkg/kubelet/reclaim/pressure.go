package reclaim

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/events"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// timeout is how long one attempt may take. Evictions do not wait that long; what is freed later counts as well.
const timeout = 2 * time.Minute

// Reclaim frees what eviction requests and no more: it removes one container or image at a time, and measures the file
// system after each. It removes first what users need least:
//
//  1. containers of removed pods, and dead containers beyond the number that is kept (both also use images)
//  2. unused images, the least recently used first
//  3. containers of terminated pods, whose logs can still be read through the API
//  4. images that only those containers used
//  5. if that was not enough, what stock removes in addition: sandboxes, containers in an unknown state, logs without a
//     pod
//
// It removes containers only if the request says that their writable layers are on the device, and images likewise. It
// waits until no other collection is under way, and ends with ctx or after two minutes. An error means that the usage
// of images or the available space was unknown, and nothing was removed from then on; or that single removals failed.
func (m *Manager) Reclaim(ctx context.Context, q policy.ReclaimRequest) (snapshot.Reclaimed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took longer than %v", timeout))
	defer cancel()
	ctx, span := m.tracer.Start(ctx, "Images/Reclaim")
	defer span.End()
	unlock, err := m.lock(ctx)
	if err != nil {
		return snapshot.Reclaimed{}, err
	}
	defer unlock()
	a := &attempt{m: m, request: q}
	enough, err := a.run(ctx)
	a.result.More = enough && a.result.Containers+a.result.Images > 0
	a.result.Freed = a.available - a.initial
	countReclaim(q.Device, enough, err)
	klog.FromContext(ctx).Info("Reclaimed", "device", q.Device, "signal", q.Signal, "target", q.Target,
		"available", a.available,
		"freed", a.result.Freed, "containers", a.result.Containers, "images", a.result.Images, "enough", enough, "err", err)
	if err != nil {
		m.config.Recorder.Eventf(m.config.NodeRef, v1.EventTypeWarning, events.ImageGCFailed, "Freeing %s of the %s: %v",
			q.Signal.Resource(), q.Device, err)
	}
	return a.result, err
}

// attempt is one call of Reclaim, which holds the manager's lock.
type attempt struct {
	m       *Manager
	request policy.ReclaimRequest
	result  snapshot.Reclaimed
	// initial and available are what the first and the last measurement found available.
	initial, available int64
	measured           bool
	// imagesRemovedAfter is one more than the number of containers that had been removed when removeImages last ran, 0
	// before its first run.
	imagesRemovedAfter int
}

// run runs the stages until enough is free.
func (a *attempt) run(ctx context.Context) (enough bool, err error) {
	stages := []struct {
		requested bool
		run       func(context.Context) error
	}{
		{a.request.Containers || a.request.Images, a.removeGarbage},
		{a.request.Images, a.removeImages},
		{a.request.Containers, a.removeTerminated},
		{a.request.Containers && a.request.Images, a.removeImages},
		{a.request.Containers, a.m.config.Collector.DeleteAllUnusedContainers},
	}
	var errs []error
	for _, stage := range stages {
		if !stage.requested {
			continue
		}
		missing, err := a.missing(ctx)
		if err != nil || missing <= 0 {
			return err == nil, errors.Join(append(errs, err)...)
		}
		if err := stage.run(ctx); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			// The last measurement may be from long ago, so that the missing amount is unknown.
			a.result.Missing = 0
			return false, errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	missing, err := a.missing(ctx)
	return err == nil && missing <= 0, errors.Join(append(errs, err)...)
}

// removeImages removes unused images. It does nothing if no container was removed since its last run.
func (a *attempt) removeImages(ctx context.Context) error {
	if a.imagesRemovedAfter == a.result.Containers+1 {
		return nil
	}
	a.imagesRemovedAfter = a.result.Containers + 1
	c, err := a.m.newImageCollection(ctx)
	if err != nil {
		return err
	}
	err = c.free(ctx, a.missingBytes)
	if a.result.Images += c.removed; c.removed > 0 {
		c.runHooks(ctx)
	}
	return err
}

// missing measures how much is still missing, in the unit of the signal.
func (a *attempt) missing(ctx context.Context) (int64, error) {
	space, err := a.m.config.Measure(ctx, a.request.Device)
	if a.result.Missing = 0; err != nil {
		return 0, fmt.Errorf("measuring the %s: %w", a.request.Device, err)
	}
	a.available = space.Bytes
	if a.request.Inodes() {
		a.available = space.Inodes
	}
	if !a.measured {
		a.initial, a.measured = a.available, true
	}
	a.result.Missing = max(0, a.request.Target-a.available)
	return a.request.Target - a.available, nil
}

// missingBytes is missing in bytes. For inodes that number is unlimited, because the inodes of an image are unknown.
func (a *attempt) missingBytes(ctx context.Context) (int64, error) {
	missing, err := a.missing(ctx)
	if err == nil && missing > 0 && a.request.Inodes() {
		return plan.Unlimited, nil
	}
	return missing, err
}
