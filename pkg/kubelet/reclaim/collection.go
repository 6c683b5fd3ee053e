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

// collection is one removal of images, from one view of the node. It belongs to who has the turn.
type collection struct {
	m    *Manager
	at   time.Time
	seen map[plan.Key]*kubecontainer.Image
	// images are those that are there, in any state.
	images []plan.Image
	// freed is the sum of the sizes of the removed ones, removed their number.
	freed   int64
	removed int
}

func (m *Manager) newCollection(ctx context.Context) (*collection, error) {
	s, err := m.sight(ctx)
	if err != nil {
		return nil, err
	}
	c := &collection{m: m, at: s.at, images: m.observe(s), seen: make(map[plan.Key]*kubecontainer.Image, len(s.images))}
	for i := range s.images {
		c.seen[m.keyOf(&s.images[i])] = &s.images[i]
	}
	c.dropInvalid()
	return c, nil
}

// dropInvalid leaves out images without an ID, which cannot be removed; as stock, where handlers are told apart it says
// so.
func (c *collection) dropInvalid() {
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

// free removes images, the least recently used first, each after a look at what is still missing, in bytes; until that
// is nothing, no image is left that may go, or ctx ends. An image that cannot be removed is passed over.
func (c *collection) free(ctx context.Context, missing func(context.Context) (int64, error)) error {
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

// freeOld removes images that nobody has used for long.
func (c *collection) freeOld(ctx context.Context) error {
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

// remove removes one image, unless a pod has come to want it since the node was looked at.
func (c *collection) remove(ctx context.Context, r plan.Removal) error {
	i := slices.IndexFunc(c.images, func(have plan.Image) bool { return have.Key == r.Image.Key })
	image := c.seen[r.Image.Key]
	if len(c.m.claims().of(image)) > 0 {
		c.images[i].InUse = true
		return nil
	}
	klog.FromContext(ctx).Info("Removing image to free bytes", "imageID", image.ID, "size", image.Size,
		"runtimeHandler", image.Spec.RuntimeHandler,
		"reason", r.Reason, "lastUsed", r.Image.LastUsed)
	if err := c.m.config.Images.RemoveImage(ctx,
		kubecontainer.ImageSpec{Image: image.ID, RuntimeHandler: image.Spec.RuntimeHandler}); err != nil {
		c.images[i].Broken = true
		return err
	}
	c.images = slices.Delete(c.images, i, i+1)
	c.freed += r.Image.Bytes
	c.removed++
	c.m.forget(r.Image.Key)
	metrics.ImageGarbageCollectedTotal.WithLabelValues(string(r.Reason)).Inc()
	return nil
}

// finish tells what remains, everything included that is in use.
func (c *collection) finish(ctx context.Context) {
	ids := make([]string, 0, len(c.images))
	for i := range c.images {
		ids = append(ids, c.images[i].Key.ID)
	}
	for _, hook := range c.m.config.Hooks {
		hook(ctx, ids, c.at)
	}
}
