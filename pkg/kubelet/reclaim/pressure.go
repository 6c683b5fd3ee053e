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

// limit is how long one attempt may take. Evictions do not wait that long; what it frees later counts all the same.
const limit = 2 * time.Minute

// Reclaim frees what eviction asks for and no more: one container or image at a time, and after each the file system
// itself says whether it is enough. What costs users least goes first:
//
//  1. containers of pods that are gone, and runs of containers beyond those that are kept (they also hold images)
//  2. unused images, the least recently used first
//  3. containers of pods that have ended but can still be asked for their logs
//  4. the images that only those held
//  5. when all that was not enough, what stock removes besides: sandboxes, containers in an unknown state, logs without
//     a pod
//
// Containers go only where writable layers lie on the device, images only where images do; see the request. It waits
// for its turn and ends with ctx, or after two minutes. An error means that it was not known what is in use, or that
// the space could not be measured, and that then nothing was removed; or that single removals failed.
func (m *Manager) Reclaim(ctx context.Context, q policy.ReclaimRequest) (snapshot.Reclaimed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
	defer cancel()
	ctx, span := m.tracer.Start(ctx, "Images/Reclaim")
	defer span.End()
	done, err := m.take(ctx)
	if err != nil {
		return snapshot.Reclaimed{}, err
	}
	defer done()
	a := &attempt{m: m, q: q}
	enough, err := a.run(ctx)
	a.got.More = enough && a.got.Containers+a.got.Images > 0
	a.got.Freed = a.last - a.first
	count(q.Device, enough, err)
	klog.FromContext(ctx).Info("Reclaimed", "device", q.Device, "signal", q.Signal, "target", q.Target,
		"available", a.last,
		"freed", a.got.Freed, "containers", a.got.Containers, "images", a.got.Images, "enough", enough, "err", err)
	if err != nil {
		m.config.Recorder.Eventf(m.config.NodeRef, v1.EventTypeWarning, events.ImageGCFailed, "Freeing %s of the %s: %v",
			q.Signal.Resource(), q.Device, err)
	}
	return a.got, err
}

// attempt is one call of Reclaim, which has the turn.
type attempt struct {
	m   *Manager
	q   policy.ReclaimRequest
	got snapshot.Reclaimed
	// first and last are what was available at the beginning and at the last look.
	first, last int64
	looked      bool
	// seen is how many containers had been removed when the images were last gone through, less one; 0 before.
	seen int
}

// run goes through the stages until there is enough.
func (a *attempt) run(ctx context.Context) (enough bool, err error) {
	stages := []struct {
		concerned bool
		run       func(context.Context) error
	}{
		{a.q.Containers || a.q.Images, a.garbage},
		{a.q.Images, a.images},
		{a.q.Containers, a.ended},
		{a.q.Containers && a.q.Images, a.images},
		{a.q.Containers, a.m.config.Collector.DeleteAllUnusedContainers},
	}
	var errs []error
	for _, stage := range stages {
		if !stage.concerned {
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
			return false, errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	missing, err := a.missing(ctx)
	return err == nil && missing <= 0, errors.Join(append(errs, err)...)
}

// images removes unused images. It does nothing when there can be no more of them than the last time.
func (a *attempt) images(ctx context.Context) error {
	if a.seen == a.got.Containers+1 {
		return nil
	}
	a.seen = a.got.Containers + 1
	c, err := a.m.newCollection(ctx)
	if err != nil {
		return err
	}
	err = c.free(ctx, a.missingOfImages)
	if a.got.Images += c.removed; c.removed > 0 {
		c.finish(ctx)
	}
	return err
}

// missing is how much has to come free still, in the unit of the signal.
func (a *attempt) missing(ctx context.Context) (int64, error) {
	space, err := a.m.config.Measure(ctx, a.q.Device)
	if a.got.Missing = 0; err != nil {
		return 0, fmt.Errorf("measuring the %s: %w", a.q.Device, err)
	}
	a.last = space.Bytes
	if a.q.Inodes() {
		a.last = space.Inodes
	}
	if !a.looked {
		a.first, a.looked = a.last, true
	}
	a.got.Missing = max(0, a.q.Target-a.last)
	return a.q.Target - a.last, nil
}

// missingOfImages is missing in bytes: how many inodes an image has nobody says, so that for inodes any number may be
// needed.
func (a *attempt) missingOfImages(ctx context.Context) (int64, error) {
	missing, err := a.missing(ctx)
	if err == nil && missing > 0 && a.q.Inodes() {
		return plan.Everything, nil
	}
	return missing, err
}
