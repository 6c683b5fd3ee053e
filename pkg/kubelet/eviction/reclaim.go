package eviction

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// reclaimer remembers the node-level reclaim of each device.
type reclaimer struct {
	mu   sync.Mutex
	last [snapshot.NumDevices]snapshot.Reclaim
}

// begin reports false when the device is being reclaimed already.
func (r *reclaimer) begin(d snapshot.Device, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last[d].Running {
		return false
	}
	r.last[d].Device, r.last[d].Running, r.last[d].Started = d, true, now
	return true
}

func (r *reclaimer) end(d snapshot.Device, now time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[d].Running, r.last[d].Finished, r.last[d].Err = false, now, err
}

// view lists the devices that were ever reclaimed.
func (r *reclaimer) view() []snapshot.Reclaim {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []snapshot.Reclaim
	for _, l := range r.last {
		if !l.Started.IsZero() {
			list = append(list, l)
		}
	}
	return list
}

// reclaim begins to free what the node itself can give: dead containers first, since they hold images.
func (m *Manager) reclaim(ctx context.Context, q policy.ReclaimRequest) {
	if !m.reclaims.begin(q.Device, m.config.Clock.Now()) {
		return
	}
	m.work.Go(func() {
		var err error
		if q.Containers {
			err = errors.Join(err, m.config.ContainerGC.DeleteAllUnusedContainers(ctx))
		}
		if q.Images {
			err = errors.Join(err, m.config.ImageGC.DeleteUnusedImages(ctx))
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Eviction manager: node-level reclaim was not complete", "signal", q.Signal, "device", q.Device)
		}
		m.reclaims.end(q.Device, m.config.Clock.Now(), err)
		m.Wake()
	})
}
