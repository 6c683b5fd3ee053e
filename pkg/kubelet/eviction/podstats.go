package eviction

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// podStatsEvery is the time after which stats of pods are read again with the next collection. Reading them costs most
// of a collection: the container runtime and cAdvisor read each container. What pods use of memory and processes is
// read from their cgroups whenever a decision may need it.
const podStatsEvery = 30 * time.Second

// podsRead is about a collection that has read stats of pods. It is not modified after that.
type podsRead struct {
	// at is when it began. active are the pods that were active then; limited is true if one of them has a limit on local
	// storage.
	at      time.Time
	active  map[types.UID]struct{}
	limited bool
	// signals are what it has observed of the node.
	signals [snapshot.NumSignals]snapshot.Observation
}

func newPodsRead(active []*v1.Pod, at time.Time) *podsRead {
	p := &podsRead{at: at, active: make(map[types.UID]struct{}, len(active))}
	for _, pod := range active {
		p.active[pod.UID] = struct{}{}
		p.limited = p.limited || snapshot.LimitsStorage(pod)
	}
	return p
}

// lacks reports whether a pod is active that was not when the collection began.
func (p *podsRead) lacks(active []*v1.Pod) bool {
	return slices.ContainsFunc(active, func(pod *v1.Pod) bool {
		_, found := p.active[pod.UID]
		return !found
	})
}

// mayKeepPods reports whether the next collection may keep the stats of pods: they are not too old, nothing has
// happened since they were read, and no decision is due that uses them on a node without pressure. Whether there is
// pressure the collection finds out.
func (m *Manager) mayKeepPods(active []*v1.Pod, now time.Time) bool {
	l := &m.loop
	read, round := l.last.podsRead, m.last.Load()
	switch {
	case read == nil, round == nil, now.Sub(read.at) >= podStatsEvery, read.lacks(active):
		return false
	case l.trigger != TriggerTimer, !m.ledger.unused(), !l.ended.empty(), m.config.Memory == nil:
		return false
	case read.limited && l.rules.LocalStorageLimits, m.options.Load().AllPods:
		return false
	}
	return !policy.NeedsPodStats(round.Snapshot, &l.rules, &read.signals)
}

// outdated reports whether stats of pods that a collection has kept cannot be used any more at its end: it took long,
// options have changed, or a pod is being evicted since.
func (m *Manager) outdated(f *stats) bool {
	late := f.readAt.Sub(f.podsRead.at) >= podStatsEvery+shortPatience
	return late || m.loop.collecting.options != m.options.Load() || !m.ledger.unused()
}

// collectNode collects what concerns the node, and what its pods use of memory and processes where memory is scarce.
// Other stats of pods are kept unless a decision may need newer ones, or anything cannot be read.
func (m *Manager) collectNode(ctx context.Context, r collectRequest) stats {
	f := stats{Stats: m.config.Collector.CollectNode(ctx), readAt: m.clock.now()}
	if f.Err != nil {
		return f
	}
	node := memorywatch.ReadNode(m.config.Memory, r.counting)
	f.Signals[snapshot.MemoryAvailable], f.Signals[snapshot.AllocatableMemoryAvailable] = node.Node, node.Pods
	if r.needsPods(&f) {
		f.readAt = m.clock.now()
		f.readMemory(m.config.Memory, r.counting)
	}
	f.Pods, f.usages, f.Images, f.podsRead = r.last.Pods, r.last.usages, r.last.Images, r.last.podsRead
	f.keptPods = !policy.NeedsPodStats(&snapshot.Snapshot{Signals: f.signals()}, &r.rules, &f.podsRead.signals)
	f.moment = m.clock.moment()
	return f
}
