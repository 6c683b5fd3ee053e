package eviction

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// figures is what one collection brought: everything that may take long to get.
type figures struct {
	taken   time.Time
	summary *statsapi.Summary
	err     error
	layout  snapshot.Layout
	// memory comes from the MemoryReader, nil when it was not asked.
	memory *snapshot.MemoryReading
	// direct: memory is newer than the summary, which may be an old one.
	direct bool
}

// collector gets figures beside the loop, one collection at a time.
type collector struct {
	summary Summary
	memory  MemoryReader
	layout  layouter
	now     func() time.Time
	results chan figures
}

// collect is one collection. It blocks as long as its sources do. scarce asks for the pods' cgroups to be read in any case.
func (c *collector) collect(ctx context.Context, scarce bool) figures {
	var f figures
	f.layout = c.layout.current(ctx, c.now())
	f.summary, f.err = c.summary.Get(ctx, true)
	if c.memory != nil && (scarce || f.err != nil) {
		r := c.memory.ReadMemory()
		f.memory = &r
	}
	f.taken = c.now()
	return f
}

// observations merges the sources: the summary, and for memory what was read directly where the summary has nothing or is old.
func (f *figures) observations() [snapshot.NumSignals]snapshot.Observation {
	signals := snapshot.FromSummary(f.summary)
	if f.err != nil {
		signals = snapshot.FailedObservations(f.err)
	}
	if f.memory != nil {
		f.standIn(&signals[snapshot.MemoryAvailable], f.memory.Node)
		f.standIn(&signals[snapshot.AllocatableMemoryAvailable], f.memory.Pods)
	}
	return signals
}

func (f *figures) standIn(o *snapshot.Observation, direct snapshot.Observation) {
	if direct.Known() && (f.direct || !o.Known()) {
		*o = direct
	}
}

// builder joins pods with their figures and keeps what is costly to derive. It belongs to the loop.
type builder struct {
	slots     map[string]*slot
	inUse     []*slot
	podLevel  bool
	requested func(types.UID) bool
}

// slot is what is kept of a pod from round to round; stats are those of the present one.
type slot struct {
	facts *snapshot.Facts
	stats *statsapi.PodStats
}

// pods joins API objects with their figures. UIDs of active pods are unique.
func (b *builder) pods(active []*v1.Pod, f *figures) []snapshot.Pod {
	b.reserve(active)
	if f.summary != nil {
		for i := range f.summary.Pods {
			if s, ok := b.slots[f.summary.Pods[i].PodRef.UID]; ok {
				s.stats = &f.summary.Pods[i]
			}
		}
	}
	pods := make([]snapshot.Pod, len(active))
	for i, s := range b.inUse {
		pods[i] = snapshot.Pod{Facts: s.facts, Stats: s.stats, Terminating: b.termination(active[i])}
		if f.memory != nil {
			pods[i].Cgroup = f.memory.ByPod[s.facts.UID]
		}
	}
	return pods
}

// reserve finds or makes a slot for each pod, and forgets pods that are gone when there are many.
func (b *builder) reserve(active []*v1.Pod) {
	if b.slots == nil || len(b.slots) > 2*len(active)+64 {
		b.slots = make(map[string]*slot, len(active))
	}
	b.inUse = b.inUse[:0]
	for _, pod := range active {
		s, ok := b.slots[string(pod.UID)]
		if !ok {
			s = &slot{}
			b.slots[string(pod.UID)] = s
		}
		if s.facts == nil || s.facts.Object != pod {
			s.facts = snapshot.NewFacts(pod, b.podLevel)
		}
		s.stats = nil
		b.inUse = append(b.inUse, s)
	}
}

// termination: the deletion timestamp is when the grace period ends, not when the deletion was asked for.
func (b *builder) termination(pod *v1.Pod) *snapshot.Termination {
	switch {
	case pod.DeletionTimestamp != nil:
		return &snapshot.Termination{Deadline: pod.DeletionTimestamp.Time}
	case b.requested != nil && b.requested(pod.UID):
		return &snapshot.Termination{}
	}
	return nil
}
