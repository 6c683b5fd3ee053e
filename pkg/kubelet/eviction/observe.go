package eviction

import (
	"context"
	"errors"
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
	// node, pods and byPod come from the MemoryReader.
	node, pods snapshot.Observation
	byPod      map[types.UID]snapshot.Memory
}

var errNotRead = errors.New("not read")

// collector gets figures beside the loop, one collection at a time.
type collector struct {
	summary Summary
	memory  MemoryReader
	layout  layouter
	now     func() time.Time
	results chan figures
}

// collect is one collection. It blocks as long as its sources do.
func (c *collector) collect(ctx context.Context) figures {
	f := figures{node: snapshot.Observation{Err: errNotRead}, pods: snapshot.Observation{Err: errNotRead}}
	f.layout = c.layout.current(ctx, c.now())
	f.summary, f.err = c.summary.Get(ctx, true)
	if c.memory != nil {
		f.node, f.pods, f.byPod = c.memory.ReadMemory()
	}
	f.taken = c.now()
	return f
}

// observations merges the sources: the summary, and for memory what was read directly where the summary has nothing.
func (f *figures) observations() [snapshot.NumSignals]snapshot.Observation {
	signals := snapshot.FromSummary(f.summary)
	if f.err != nil {
		signals = snapshot.FailedObservations(f.err)
	}
	standIn(&signals[snapshot.MemoryAvailable], f.node)
	standIn(&signals[snapshot.AllocatableMemoryAvailable], f.pods)
	return signals
}

func standIn(o *snapshot.Observation, direct snapshot.Observation) {
	if !o.Known() && direct.Known() {
		*o = direct
	}
}

// builder makes snapshots and keeps what is costly to derive. It belongs to the loop.
type builder struct {
	facts     map[types.UID]*snapshot.Facts
	stats     map[string]*statsapi.PodStats
	podLevel  bool
	requested func(types.UID) bool
}

// pods joins API objects with their figures.
func (b *builder) pods(active []*v1.Pod, f *figures) []snapshot.Pod {
	b.index(f.summary)
	if len(b.facts) > 2*len(active)+64 {
		b.facts = nil
	}
	if b.facts == nil {
		b.facts = make(map[types.UID]*snapshot.Facts, len(active))
	}
	pods := make([]snapshot.Pod, len(active))
	for i, pod := range active {
		pods[i] = snapshot.Pod{
			Facts:       b.factsOf(pod),
			Stats:       b.stats[string(pod.UID)],
			Cgroup:      f.byPod[pod.UID],
			Terminating: b.termination(pod),
		}
	}
	return pods
}

func (b *builder) index(summary *statsapi.Summary) {
	clear(b.stats)
	if summary == nil {
		return
	}
	if b.stats == nil {
		b.stats = make(map[string]*statsapi.PodStats, len(summary.Pods))
	}
	for i := range summary.Pods {
		b.stats[summary.Pods[i].PodRef.UID] = &summary.Pods[i]
	}
}

func (b *builder) factsOf(pod *v1.Pod) *snapshot.Facts {
	if f, ok := b.facts[pod.UID]; ok && f.Object == pod {
		return f
	}
	f := snapshot.NewFacts(pod, b.podLevel)
	b.facts[pod.UID] = f
	return f
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
