package eviction

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// figures is what one collection brought: everything that may take long to get.
type figures struct {
	// moment is when it had come to its end.
	moment
	// summary is what could be had of it when there is an err as well.
	summary *statsapi.Summary
	err     error
	layout  snapshot.Layout
	// memory comes from the MemoryReader, nil when it was not asked.
	memory *snapshot.MemoryReading
	// direct: memory is newer than the summary, which may be an old one.
	direct bool
	// silent: the container runtime does not tell what pods use.
	silent bool
	// awaited: it is slow to tell, and these figures of pods are those of the last collection.
	awaited bool
	// pods are those of the summary.
	pods podStats
	// images are those of each pod that nobody else uses, nil where they do not matter.
	images map[types.UID]snapshot.Bytes
}

// question is what a collection is asked for.
type question struct {
	// scarce asks for the pods' cgroups to be read in any case.
	scarce bool
	how    snapshot.Counting
	// rules say whether by the summary anything is scarce.
	rules policy.Rules
	// layout is the one that holds, for those who cannot ask for another.
	layout snapshot.Layout
}

// wantsPods tells whether the pods' cgroups have to be read: what the summary says of a pod may be from before it has
// begun to use anything (cAdvisor looks at a cgroup every ten seconds or less often), so that the wrong one would be
// evicted.
func (q *question) wantsPods(f *figures) bool {
	return q.scarce || f.err != nil || !q.how.Stock() ||
		!policy.Calm(&snapshot.Snapshot{Signals: snapshot.FromSummary(f.summary)}, &q.rules)
}

func (o *Options) counting() snapshot.Counting {
	return snapshot.Counting{Reclaimable: o.MemoryFormula == v1alpha1.Reclaimable, Swap: o.CountSwap,
		Hugepages: o.CountHugepages}
}

// collector gets figures beside the loop, one collection at a time. Beside a collection that hangs it gets what of them
// can be had.
type collector struct {
	summary Summary
	// parts and pods stand in for a summary that fails; nil where there is nothing that could.
	parts            Parts
	pods             func(context.Context) ([]statsapi.PodStats, error)
	memory           MemoryReader
	images           func(context.Context) (map[types.UID]snapshot.Bytes, error)
	layout           layouter
	clock            *agentClock
	results, besides chan figures
}

// collect is one collection. It blocks as long as its sources do; when it is given up, ctx ends for those that heed it.
func (c *collector) collect(ctx context.Context, q question) figures {
	var f figures
	begun := c.clock.now()
	f.layout = c.layout.current(ctx, begun)
	if f.summary, f.err = c.summary.Get(ctx, true); f.err != nil && c.parts != nil {
		f.summary, f.silent = c.pieces(ctx, f.layout)
	}
	if f.summary != nil {
		f.pods.reported = f.summary.Pods
	}
	if q.wantsPods(&f) {
		f.pods.convert()
		if c.memory != nil {
			r := c.memory.ReadMemory(q.how)
			f.memory = &r
		}
	}
	if c.images != nil && f.layout.MeasureOf(snapshot.ImageDevice).Images {
		var err error
		if f.images, err = c.images(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Eviction manager: cannot tell who uses which image")
		}
	}
	if f.moment = c.clock.moment(); f.err == nil && c.parts != nil && f.taken.Sub(begun) >= shortPatience {
		c.renew(ctx, &f)
	}
	return f
}

// renew replaces what needs no runtime in a summary that took long: it may have been read at the beginning, and looks
// beside the collection have seen newer figures.
func (c *collector) renew(ctx context.Context, f *figures) {
	node, local := &f.summary.Node, &c.local(ctx, f.layout).Node
	if local.Fs != nil {
		node.Fs = local.Fs
	}
	if local.Rlimit != nil {
		node.Rlimit = local.Rlimit
	}
	if local.Runtime != nil {
		node.Runtime = local.Runtime
	}
}

// beside is as much as can be had without the container runtime, for which a collection waits.
func (c *collector) beside(ctx context.Context, q question) figures {
	f := figures{err: errCollecting, layout: q.layout}
	if c.parts != nil {
		f.summary = c.local(ctx, q.layout)
	}
	if c.memory != nil {
		r := c.memory.ReadMemory(q.how)
		f.memory = &r
	}
	f.moment = c.clock.moment()
	return f
}

// observations merges the sources: the summary, and for memory what was read directly. That is newer, counts as
// configured, and goes with what was read of the pods at the same time.
func (f *figures) observations() [snapshot.NumSignals]snapshot.Observation {
	signals := snapshot.FromSummary(f.summary)
	if f.err != nil {
		failed := snapshot.FailedObservations(f.err)
		for i := range signals {
			if !signals[i].Known() {
				signals[i] = failed[i]
			}
		}
	}
	if f.memory != nil {
		replace(&signals[snapshot.MemoryAvailable], f.memory.Node)
		replace(&signals[snapshot.AllocatableMemoryAvailable], f.memory.Pods)
	}
	return signals
}

// replace takes what was read directly, if it could be read.
func replace(o *snapshot.Observation, direct snapshot.Observation) {
	if direct.Known() {
		*o = direct
	}
}
