package eviction

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// reclaimer records the last node-level reclaim of each device and unit.
type reclaimer struct {
	mu   sync.Mutex
	last []snapshot.Reclaim
}

// entry returns the entry for a request, and adds it if there is none. The caller holds mu.
func (r *reclaimer) entry(q *policy.ReclaimRequest) *snapshot.Reclaim {
	i := slices.IndexFunc(r.last, func(l snapshot.Reclaim) bool { return l.Device == q.Device && l.Inodes == q.Inodes() })
	if i < 0 {
		r.last, i = append(r.last, snapshot.Reclaim{Device: q.Device, Inodes: q.Inodes()}), len(r.last)
	}
	return &r.last[i]
}

// begin records the beginning of a reclaim. It returns false if one for the same device and unit is running.
func (r *reclaimer) begin(q *policy.ReclaimRequest, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.entry(q)
	if l.Running {
		return false
	}
	l.Running, l.Started = true, now
	return true
}

// end records the end of a reclaim.
func (r *reclaimer) end(q *policy.ReclaimRequest, now time.Time, got snapshot.Reclaimed, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.entry(q)
	l.Running, l.Finished, l.Got, l.Err = false, now, got, err
}

// view returns a copy of all entries.
func (r *reclaimer) view() []snapshot.Reclaim {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.last)
}

// reclaim begins a node-level reclaim in a goroutine of its own, unless one for the same device and unit is running.
func (m *Manager) reclaim(ctx context.Context, decision uint64, q policy.ReclaimRequest) {
	if !m.reclaims.begin(&q, m.clock.now()) {
		return
	}
	m.work.Go(func() {
		got, err := m.config.Reclaimer.Reclaim(ctx, q)
		now := m.clock.now()
		m.reclaims.end(&q, now, got, err)
		m.sinks.result(ctx, &Result{Decision: decision, At: now, Kind: ReclaimEnded, Reclaim: &q, Reclaimed: got, Err: err})
		m.Wake()
	})
}
