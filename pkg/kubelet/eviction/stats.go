package eviction

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// stats are the result of one collection, and of the memory reading that belongs to it. A round is made from them.
type stats struct {
	// moment is the end of the collection.
	moment
	// readAt is the time from which on the usage of pods was read, except for stats that were collected earlier.
	readAt time.Time
	snapshot.Stats
	// usages are those of Pods, in the same order; nil before convert.
	usages []snapshot.Usage
	// memory comes from the memorywatch.Reader; nil when it was not read.
	memory *snapshot.MemoryReading
	// counting is how memory was counted; the zero value when it was not read.
	counting snapshot.Counting
	// direct is true when memory is newer than the rest, which may be from an earlier round.
	direct bool
	// podsRead is about the complete collection that has read Pods; nil if they are not from one. keptPods is true when
	// that is an earlier one, and this one has read the node only.
	podsRead *podsRead
	keptPods bool
	// awaited is true when the container runtime is slow, and Pods are those of the last collection.
	awaited bool
}

// collectRequest says what a collection reads.
type collectRequest struct {
	// readPods is true when the cgroups of pods are read in any case.
	readPods bool
	counting snapshot.Counting
	// rules decide whether the cgroups of pods are read because of the stats.
	rules policy.Rules
	// active are the active pods. last are the last stats if those of pods may be kept; nil otherwise.
	active []*v1.Pod
	last   *stats
	// layout is the last one that was detected, for a collection that does not detect it.
	layout snapshot.Layout
}

// needsPods reports whether the cgroups of pods have to be read. The stats of a pod may be older than its use of memory
// (cAdvisor reads a cgroup every ten seconds or less often), so that another pod would be evicted.
func (r *collectRequest) needsPods(f *stats) bool {
	return r.readPods || f.Err != nil || !r.counting.Stock() ||
		!policy.Calm(&snapshot.Snapshot{Signals: f.Signals}, &r.rules)
}

// collectStats is one collection: a complete one unless stats of pods may be kept. It blocks as long as the Collector
// does.
func (m *Manager) collectStats(ctx context.Context, r collectRequest) stats {
	if r.last != nil {
		if f := m.collectNode(ctx, r); f.keptPods {
			return f
		}
	}
	f := stats{readAt: m.clock.now()}
	f.Stats = m.config.Collector.Collect(ctx)
	if f.Pods != nil && f.Err == nil && !f.RuntimeSilent {
		f.podsRead = newPodsRead(r.active, f.readAt)
	}
	if r.needsPods(&f) {
		f.convert()
		f.readAt = m.clock.now()
		f.readMemory(m.config.Memory, r.counting)
	}
	if f.podsRead != nil {
		f.podsRead.signals = f.signals()
	}
	f.moment = m.clock.moment()
	return f
}

// collectLocal collects what needs no container runtime, while a complete collection is under way.
func (m *Manager) collectLocal(ctx context.Context, r collectRequest) stats {
	f := stats{Stats: m.config.Collector.CollectLocal(ctx, r.layout)}
	f.FailUnknown(errCollecting)
	f.readAt = m.clock.now()
	f.readMemory(m.config.Memory, r.counting)
	f.moment = m.clock.moment()
	return f
}

// memoryOnly returns stats that have nothing but memory.
func (m *Manager) memoryOnly() stats {
	f := stats{
		moment: m.clock.moment(), readAt: m.clock.now(),
		Stats: snapshot.Stats{Layout: m.loop.layout, Signals: snapshot.Unobserved(), Err: errCollecting},
	}
	f.FailUnknown(errCollecting)
	f.readMemory(m.config.Memory, m.options.Load().Counting())
	return f
}

func (f *stats) readMemory(reader memorywatch.Reader, counting snapshot.Counting) {
	if reader != nil {
		f.memory, f.counting = new(reader.ReadMemory(counting)), counting
	}
}

// signals returns the observations of a round: those of memory come from the memory reading when it has them. It is
// newer, counts as configured, and fits what was read of the pods at the same time.
func (f *stats) signals() [snapshot.NumSignals]snapshot.Observation {
	signals := f.Signals
	if f.memory != nil {
		replace(&signals[snapshot.MemoryAvailable], f.memory.Node)
		replace(&signals[snapshot.AllocatableMemoryAvailable], f.memory.Pods)
	}
	return signals
}

// replace replaces an observation by a direct one that is known.
func replace(o *snapshot.Observation, direct snapshot.Observation) {
	if direct.Known() {
		*o = direct
	}
}

// numPods returns the number of pods that have stats.
func (f *stats) numPods() int {
	if f.Pods == nil {
		return 0
	}
	return f.Pods.Len()
}

// usage returns the usage of the pod at an index of Pods.
func (f *stats) usage(i int) *snapshot.Usage {
	if f.usages != nil {
		return &f.usages[i]
	}
	return &f.Pods.Usages(i, i+1)[0]
}

// convert converts the stats of all pods, unless that is done already. On a calm node the stats of most pods never are.
func (f *stats) convert() {
	if f.usages == nil && f.Pods != nil {
		f.usages = f.Pods.Usages(0, f.Pods.Len())
	}
}
