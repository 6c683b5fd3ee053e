package reclaim

import (
	"slices"
	"sort"
	"time"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/util/sliceutils"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
)

// updateRecords updates the records from an observation, deletes those of images that are gone, and returns the images
// in the order of the runtime's list. An image in use was last used at the time of the observation.
func (m *Manager) updateRecords(u *imageUsage) []plan.Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage = u
	before := m.records
	m.records = make(map[plan.Key]imageRecord, len(u.images))
	list := make([]plan.Image, 0, len(u.images))
	for i := range u.images {
		image := &u.images[i]
		key := m.keyOf(image)
		if _, again := m.records[key]; again {
			continue
		}
		r, known := before[key]
		switch {
		case known:
		case u.at.Before(m.lastRemoval):
			// The image may have been removed since the observation.
			continue
		default:
			r.firstDetected = u.at
		}
		inUse := len(u.usersOf(image)) > 0
		if inUse {
			r.lastUsed = u.at
		}
		m.records[key] = r
		list = append(list, plan.Image{
			Key: key, Bytes: image.Size, FirstDetected: r.firstDetected, LastUsed: r.lastUsed, InUse: inUse,
			Pinned: image.Pinned,
		})
	}
	return list
}

// addRecord adds a record of an image that has none. The caller holds mu.
func (m *Manager) addRecord(key plan.Key, now time.Time) {
	if _, known := m.records[key]; !known {
		m.records[key] = imageRecord{firstDetected: now}
	}
}

func (m *Manager) deleteRecord(key plan.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, key)
	m.lastRemoval = m.config.Clock.Now()
}

// keyOf returns the key of an image.
func (m *Manager) keyOf(image *kubecontainer.Image) plan.Key {
	if !m.config.Features.RuntimeClassInImageCRI {
		return plan.Key{ID: image.ID}
	}
	return plan.Key{ID: image.ID, Handler: image.Spec.RuntimeHandler}
}

// setImageList sets the list that GetImageList returns.
func (m *Manager) setImageList(images []kubecontainer.Image) {
	sorted := slices.Clone(images)
	sort.Sort(sliceutils.ByImageSize(sorted))
	m.imageList.Store(&sorted)
}

// GetImageList returns the newest list of images, the largest first; it is empty before the first reading. The caller
// must not modify it. The error is always nil.
func (m *Manager) GetImageList() ([]kubecontainer.Image, error) {
	if list := m.imageList.Load(); list != nil {
		return *list, nil
	}
	return nil, nil
}
