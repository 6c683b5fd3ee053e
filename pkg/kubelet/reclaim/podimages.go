package reclaim

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// viewAge is how old a view of the node may be for ranking pods by their images.
const viewAge = 30 * time.Second

// PodImages tells for each pod that uses images how many bytes of them nobody else uses: what could be removed if the
// pod went. Pinned images and those that are being pulled are nobody's. The view is at most half a minute old.
func (m *Manager) PodImages(ctx context.Context) (map[types.UID]snapshot.Value[snapshot.Bytes], error) {
	s, err := m.recent(ctx)
	if err != nil {
		return nil, err
	}
	pods := map[types.UID]snapshot.Value[snapshot.Bytes]{}
	for i := range s.images {
		image := &s.images[i]
		users := s.usersOf(image)
		for _, uid := range users {
			if uid == nobody {
				continue
			}
			v := snapshot.Known(pods[uid].Amount, s.at)
			if len(users) == 1 && !image.Pinned {
				v.Amount += snapshot.Bytes(max(0, image.Size))
			}
			pods[uid] = v
		}
	}
	return pods, nil
}

// recent is a view of the node that is not too old.
func (m *Manager) recent(ctx context.Context) (*sighting, error) {
	m.mu.Lock()
	s := m.seen
	m.mu.Unlock()
	if s != nil && m.config.Clock.Since(s.at) < viewAge {
		return s, nil
	}
	s, err := m.sight(ctx)
	if err != nil {
		return nil, err
	}
	m.observe(s)
	return s, nil
}
