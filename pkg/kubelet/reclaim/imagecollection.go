package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
)

// imageCollection is one collection of images, based on one observation of their usage. Its owner holds the manager's
// lock.
type imageCollection struct {
	m             *Manager
	at            time.Time
	runtimeImages map[plan.Key]*kubecontainer.Image
	// images are all images of the node.
	images []plan.Image
	// freed is the sum of the sizes of the removed images, removed their number.
	freed   int64
	removed int
}

func (m *Manager) newImageCollection(ctx context.Context) (*imageCollection, error) {
	u, err := m.readUsage(ctx)
	if err != nil {
		return nil, err
	}
	c := &imageCollection{
		m: m, at: u.at, images: m.updateRecords(u),
		runtimeImages: make(map[plan.Key]*kubecontainer.Image, len(u.images)),
	}
	for i := range u.images {
		c.runtimeImages[m.keyOf(&u.images[i])] = &u.images[i]
	}
	c.dropInvalid()
	return c, nil
}

// dropInvalid drops images without an ID, which cannot be removed, if images are distinguished by runtime handler; with
// an event, as in stock.
func (c *imageCollection) dropInvalid() {
	c.images = slices.DeleteFunc(c.images, func(i plan.Image) bool {
		if i.Key.ID != "" || !c.m.config.Features.RuntimeClassInImageCRI {
			return false
		}
		if !i.InUse && !i.Pinned {
			c.m.config.Recorder.Eventf(c.m.config.NodeRef, v1.EventTypeWarning, events.InvalidImageID,
				"ImageID is not valid, skipping, image: %v", i.Key.ID)
		}
		return true
	})
}

// free removes images, the least recently used first, until missing returns no more bytes, no removable image is left,
// or ctx ends. It calls missing before each removal, and skips images that cannot be removed.
func (c *imageCollection) free(ctx context.Context, missing func(context.Context) (int64, error)) error {
	var failures []error
	for {
		need, err := missing(ctx)
		if err != nil || need <= 0 {
			return errors.Join(errors.Join(failures...), err)
		}
		next := plan.ForSpace(c.images, need, c.m.config.Policy.Images, c.at)
		if len(next) == 0 {
			return errors.Join(failures...)
		}
		if err := c.remove(ctx, next[0]); err != nil {
			failures = append(failures, err)
		}
		if ctx.Err() != nil {
			return errors.Join(errors.Join(failures...), context.Cause(ctx))
		}
	}
}

// freeUnused removes images that were not used for the maximal age.
func (c *imageCollection) freeUnused(ctx context.Context) error {
	var failures []error
	for _, r := range plan.ForAge(c.images, c.m.config.Policy.Images, c.at) {
		if err := c.remove(ctx, r); err != nil {
			failures = append(failures, err)
		}
	}
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("wanted to free images older than %v, encountered errors in image deletion: %w",
		c.m.config.Policy.Images.MaxAge, errors.Join(failures...))
}

// remove removes one image, unless a pod or a pull has begun to refer to it since the usage was observed.
func (c *imageCollection) remove(ctx context.Context, r plan.Removal) error {
	i := slices.IndexFunc(c.images, func(image plan.Image) bool { return image.Key == r.Image.Key })
	image := c.runtimeImages[r.Image.Key]
	if len(c.m.references().users(image)) > 0 {
		c.images[i].InUse = true
		return nil
	}
	klog.FromContext(ctx).Info("Removing image to free bytes", "imageID", image.ID, "size", image.Size,
		"runtimeHandler", image.Spec.RuntimeHandler,
		"reason", r.Reason, "lastUsed", r.Image.LastUsed)
	if err := c.m.config.Images.RemoveImage(ctx,
		kubecontainer.ImageSpec{Image: image.ID, RuntimeHandler: image.Spec.RuntimeHandler}); err != nil {
		c.images[i].RemovalFailed = true
		return err
	}
	c.images = slices.Delete(c.images, i, i+1)
	c.freed += r.Image.Bytes
	c.removed++
	c.m.deleteRecord(r.Image.Key)
	metrics.ImageGarbageCollectedTotal.WithLabelValues(string(r.Reason)).Inc()
	return nil
}

// runHooks calls the hooks with all remaining images, those in use included.
func (c *imageCollection) runHooks(ctx context.Context) {
	ids := make([]string, 0, len(c.images))
	for i := range c.images {
		ids = append(ids, c.images[i].Key.ID)
	}
	for _, hook := range c.m.config.Hooks {
		hook(ctx, ids, c.at)
	}
}
