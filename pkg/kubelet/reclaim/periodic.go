package reclaim

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/events"
)

const (
	// imagePeriod and containerPeriod are the pauses between two collections; stock's.
	imagePeriod     = 5 * time.Minute
	containerPeriod = time.Minute
)

var errNoCapacity = errors.New("invalid capacity 0 on image filesystem")

// CollectContainers removes dead containers and sandboxes by the collector's policy, every minute until ctx ends.
func (m *Manager) CollectContainers(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := m.config.Collector.GarbageCollect(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Container garbage collection failed")
			m.config.Recorder.Eventf(m.config.NodeRef, v1.EventTypeWarning, events.ContainerGCFailed, "%s", err.Error())
		}
	}, containerPeriod)
}

// CollectImages calls GarbageCollect every five minutes until ctx ends. It returns at once if the policy can never
// remove an image. The first of several errors is only logged: statistics may be missing at the start.
func (m *Manager) CollectImages(ctx context.Context) {
	logger, policy := klog.FromContext(ctx), m.config.Policy
	if policy.HighPercent == 100 && policy.Images.MaxAge == 0 {
		logger.V(2).Info("Image garbage collection is off: imageGCHighThresholdPercent is 100 and imageMaximumGCAge is 0")
		return
	}
	began, failedBefore := m.config.Clock.Now(), false
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := m.GarbageCollect(ctx, began)
		if err != nil {
			logger.Error(err, "Image garbage collection failed", "again", failedBefore)
		}
		if err != nil && failedBefore {
			m.config.Recorder.Event(m.config.NodeRef, v1.EventTypeWarning, events.ImageGCFailed, err.Error())
		}
		failedBefore = err != nil
	}, imagePeriod)
}

// GarbageCollect removes images that were not used for the maximal age. If the use of the image file system has reached
// the high percentage, it removes as many more as bring it to the low percentage by their sizes, as stock does. began
// is when the agent started: until the maximal age has passed since, no image counts as unused for that long. It waits
// until no other collection is under way. It also returns an error if not enough could be removed.
func (m *Manager) GarbageCollect(ctx context.Context, began time.Time) error {
	ctx, span := m.tracer.Start(ctx, "Images/GarbageCollect")
	defer span.End()
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := m.newImageCollection(ctx)
	if err != nil {
		return err
	}
	var ageErr error
	if maxAge := m.config.Policy.Images.MaxAge; maxAge != 0 && c.at.Sub(began) > maxAge {
		ageErr = c.freeUnused(ctx)
	}
	err = c.freeToLowPercent(ctx)
	if c.removed > 0 {
		c.runHooks(ctx)
	}
	return errors.Join(ageErr, err)
}

// freeToLowPercent frees space down to the low percentage, once the use of the file system has reached the high one.
func (c *imageCollection) freeToLowPercent(ctx context.Context) error {
	capacity, available, err := c.imageFs(ctx)
	if err != nil {
		return err
	}
	p := c.m.config.Policy
	used := 100 - int(available*100/capacity)
	if used < p.HighPercent {
		return nil
	}
	need := capacity*int64(100-p.LowPercent)/100 - available
	klog.FromContext(ctx).Info(
		"Disk usage on image filesystem is over the high threshold, trying to free bytes down to the low threshold",
		"usage", used, "highThreshold", p.HighPercent, "amountToFree", need, "lowThreshold", p.LowPercent)
	before := c.freed
	err = c.free(ctx, func(context.Context) (int64, error) { return need - (c.freed - before), nil })
	freed := c.freed - before
	if err != nil {
		return fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w", need, freed,
			err)
	}
	if freed >= need {
		return nil
	}
	message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		used, formatBytes(capacity), freed)
	c.m.config.Recorder.Eventf(c.m.config.NodeRef, v1.EventTypeWarning, events.FreeDiskSpaceFailed, "%s", message)
	return errors.New(message)
}

// imageFs returns capacity and available bytes of the image file system. Without an error the capacity is not zero.
func (c *imageCollection) imageFs(ctx context.Context) (capacity, available int64, err error) {
	stats, _, err := c.m.config.Stats.ImageFsStats(ctx)
	if err != nil {
		return 0, 0, err
	}
	if stats.CapacityBytes != nil {
		capacity = int64(*stats.CapacityBytes)
	}
	if stats.AvailableBytes != nil {
		available = int64(*stats.AvailableBytes)
	}
	if available > capacity {
		klog.FromContext(ctx).Info("Availability is larger than capacity", "available", available, "capacity", capacity)
		available = capacity
	}
	if capacity == 0 {
		c.m.config.Recorder.Eventf(c.m.config.NodeRef, v1.EventTypeWarning, events.InvalidDiskCapacity, "%s",
			errNoCapacity.Error())
		return 0, 0, errNoCapacity
	}
	return capacity, available, nil
}

// formatBytes formats a number of bytes in the largest unit of which there is at least one.
func formatBytes(bytes int64) string {
	const step = 1024
	if bytes < step {
		return fmt.Sprintf("%d B", bytes)
	}
	units, n := []string{"KiB", "MiB", "GiB", "TiB"}, float64(bytes)/step
	for n >= step && len(units) > 1 {
		n, units = n/step, units[1:]
	}
	return fmt.Sprintf("%.1f %s", n, units[0])
}
