package reclaim

import (
	"slices"
	"sort"
	"time"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/util/sliceutils"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
)

// observe writes into the table what was seen, forgets images that are gone, and returns those that are there in the
// order of the runtime's list. An image in use was last used when it was seen.
func (m *Manager) observe(s *sighting) []plan.Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = s
	before := m.records
	m.records = make(map[plan.Key]history, len(s.images))
	list := make([]plan.Image, 0, len(s.images))
	for i := range s.images {
		image := &s.images[i]
		key := m.keyOf(image)
		if _, again := m.records[key]; again {
			continue
		}
		r, known := before[key]
		switch {
		case known:
		case s.at.Before(m.removed):
			// It may be one that was removed since.
			continue
		default:
			r.first = s.at
		}
		inUse := len(s.usersOf(image)) > 0
		if inUse {
			r.last = s.at
		}
		m.records[key] = r
		list = append(list, plan.Image{
			Key: key, Bytes: image.Size, FirstDetected: r.first, LastUsed: r.last, InUse: inUse, Pinned: image.Pinned,
		})
	}
	return list
}

// note makes an entry for an image that has none. The caller holds the lock.
func (m *Manager) note(key plan.Key, now time.Time) {
	if _, known := m.records[key]; !known {
		m.records[key] = history{first: now}
	}
}

func (m *Manager) forget(key plan.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, key)
	m.removed = m.config.Clock.Now()
}

// keyOf is how an image is told apart from others.
func (m *Manager) keyOf(image *kubecontainer.Image) plan.Key {
	if !m.config.Features.RuntimeClassInImageCRI {
		return plan.Key{ID: image.ID}
	}
	return plan.Key{ID: image.ID, Handler: image.Spec.RuntimeHandler}
}

// publish keeps the list for GetImageList.
func (m *Manager) publish(images []kubecontainer.Image) {
	sorted := slices.Clone(images)
	sort.Sort(sliceutils.ByImageSize(sorted))
	m.list.Store(&sorted)
}

// GetImageList is the list of images as it was read last, the biggest first; empty before the first time. The caller
// must not modify it. The error is always nil; it is there for stock's interface.
func (m *Manager) GetImageList() ([]kubecontainer.Image, error) {
	if list := m.list.Load(); list != nil {
		return *list, nil
	}
	return nil, nil
}
