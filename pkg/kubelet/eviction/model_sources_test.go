package eviction

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// modelReads is how long it takes to read the counters.
const modelReads = 200 * time.Microsecond

var errModelReader = errors.New("the counters cannot be read")

// modelSources is the state of what a manager reads.
type modelSources struct {
	// next is when the sources of the summary measure again, node what they have measured last.
	next time.Time
	node modelSample
	// lagging: the summary has the node's memory as it was measured last, and not the present one.
	lagging bool
	// failsUntil and failures make reading the counters fail for a while, or that many times.
	failsUntil time.Time
	failures   int
	// takes is how long a summary takes at present.
	takes time.Duration
}

// modelSample is what was measured. stamp is the time by the wall clock.
type modelSample struct {
	stamp                         metav1.Time
	memory, anonymous, disk       float64
	volumes                       float64
	available, podsUsed, diskFree float64
	known                         bool
}

// sample is what the sources of the summary do every modelSampling.
func (n *modelNode) sample() {
	n.sources.next = n.at.Add(modelSampling)
	n.sources.node = n.measure()
	for _, p := range n.pods {
		p.sampled = modelSample{
			stamp: n.stamp(), memory: p.uses(), anonymous: p.memory[anonymous], volumes: p.memory[memoryVolume],
			disk: p.disk, known: true,
		}
	}
}

func (n *modelNode) measure() modelSample {
	s := modelSample{stamp: n.stamp(), available: n.available(), podsUsed: n.podsUsed(), known: true}
	if n.images != nil {
		s.diskFree = n.imagesFree()
	}
	return s
}

func bytesOf(f float64) *uint64 { return u(int64(f)) }

// runtimeAnswer returns after the runtime has taken this long for an answer.
func runtimeAnswer(ctx context.Context, after time.Duration) error {
	select {
	case <-time.After(after):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *modelNode) Get(ctx context.Context, _ bool) (*statsapi.Summary, error) {
	// The stats of the node come first, those of the runtime take time.
	unlock := n.locked()
	takes, node := n.sources.takes, n.measure()
	n.summaryTook = max(n.summaryTook, takes)
	unlock()
	if err := runtimeAnswer(ctx, takes); err != nil {
		return nil, err
	}
	defer n.locked()()
	if n.sources.lagging {
		node = n.sources.node
	}
	return n.summary(node), nil
}

// ImageFsStats is one of the half dozen answers of the runtime that a summary needs.
func (n *modelNode) ImageFsStats(ctx context.Context) (images, containers *statsapi.FsStats, err error) {
	unlock := n.locked()
	takes := n.sources.takes / 6
	unlock()
	if err := runtimeAnswer(ctx, takes); err != nil {
		return nil, nil, err
	}
	defer n.locked()()
	runtime := n.summary(n.measure()).Node.Runtime
	return runtime.ImageFs, runtime.ContainerFs, nil
}

func (n *modelNode) RootFsStats() (*statsapi.FsStats, error) {
	defer n.locked()()
	return n.summary(n.measure()).Node.Fs, nil
}

func (n *modelNode) RlimitStats() (*statsapi.RlimitStats, error) { return &statsapi.RlimitStats{}, nil }

func (n *modelNode) ListPodStats(ctx context.Context) ([]statsapi.PodStats, error) {
	s, err := n.Get(ctx, false)
	if err != nil {
		return nil, err
	}
	return s.Pods, nil
}

func (n *modelNode) GetCPUAndMemoryStats(ctx context.Context) (*statsapi.Summary, error) {
	return n.Get(ctx, true)
}

func (n *modelNode) summary(node modelSample) *statsapi.Summary {
	memory := func(available, used float64) *statsapi.MemoryStats {
		return &statsapi.MemoryStats{
			Time: node.stamp, AvailableBytes: bytesOf(available), WorkingSetBytes: bytesOf(used),
		}
	}
	fs := &statsapi.FsStats{Time: n.stamp(), AvailableBytes: u(80 * gi), CapacityBytes: u(100 * gi)}
	imageFs := fs
	if n.images != nil {
		// The runtime's stats of it are as old as its last measurement.
		imageFs = &statsapi.FsStats{
			Time:           n.sources.node.stamp,
			AvailableBytes: bytesOf(n.sources.node.diskFree), CapacityBytes: bytesOf(n.images.capacity),
		}
	}
	pods := statsapi.ContainerStats{
		Name: statsapi.SystemContainerPods, Memory: memory(n.podsLimit-node.podsUsed, node.podsUsed),
	}
	s := &statsapi.Summary{Node: statsapi.NodeStats{
		Memory: memory(node.available, n.capacity-node.available), Fs: fs,
		Runtime:          &statsapi.RuntimeStats{ImageFs: imageFs, ContainerFs: imageFs},
		SystemContainers: []statsapi.ContainerStats{pods},
	}}
	for _, p := range n.pods {
		if p.here() && p.sampled.known {
			s.Pods = append(s.Pods, p.stats())
		}
	}
	return s
}

func (p *modelPod) stats() statsapi.PodStats {
	at, s := p.sampled.stamp, &p.sampled
	memory := &statsapi.MemoryStats{Time: at, WorkingSetBytes: bytesOf(s.memory), RSSBytes: bytesOf(s.anonymous)}
	var volumes []statsapi.VolumeStats
	for i := range p.object.Spec.Volumes {
		volumes = append(volumes, statsapi.VolumeStats{
			Name: p.object.Spec.Volumes[i].Name, FsStats: statsapi.FsStats{Time: at, UsedBytes: bytesOf(s.volumes)},
		})
	}
	return statsapi.PodStats{
		PodRef: statsapi.PodReference{UID: string(p.object.UID)}, Memory: memory, VolumeStats: volumes,
		Containers: []statsapi.ContainerStats{{
			Name: "c", Memory: memory, Logs: &statsapi.FsStats{Time: at, UsedBytes: u(0)},
			Rootfs: &statsapi.FsStats{Time: at, UsedBytes: bytesOf(s.disk)},
		}},
	}
}

func (n *modelNode) Counters(snapshot.Counting) (snapshot.MemoryCounters, error) {
	<-time.After(modelReads)
	defer n.locked()()
	if s := &n.sources; s.failures > 0 || n.at.Before(s.failsUntil) {
		s.failures = max(0, s.failures-1)
		n.readerFailed = n.at
		return snapshot.MemoryCounters{}, errModelReader
	}
	used := n.podsUsed()
	return snapshot.MemoryCounters{Node: snapshot.Bytes(n.system + used), Pods: snapshot.Bytes(used),
		NodeCapacity: snapshot.Bytes(n.capacity), At: snapshot.WallTime(n.stamp().Time)}, nil
}

func (n *modelNode) ReadMemory(snapshot.Counting) snapshot.MemoryReading {
	defer n.locked()()
	r := snapshot.MemoryReading{ByPod: map[types.UID]*snapshot.Memory{}}
	if n.at.Before(n.sources.failsUntil) {
		n.readerFailed = n.at
		r.Node.Err, r.Pods.Err = errModelReader, errModelReader
		return r
	}
	now, used := snapshot.WallTime(n.stamp().Time), n.podsUsed()
	observation := func(available, capacity float64) snapshot.Observation {
		return snapshot.Observation{Available: int64(available), Capacity: int64(capacity), At: now}
	}
	known := func(f float64) snapshot.Value[snapshot.Bytes] { return snapshot.Known(snapshot.Bytes(f), now) }
	r.Node, r.Pods = observation(n.available(), n.capacity), observation(n.podsLimit-used, n.podsLimit)
	for _, p := range n.pods {
		if p.here() {
			r.ByPod[p.object.UID] = &snapshot.Memory{WorkingSet: known(p.uses()), Anonymous: known(p.memory[anonymous])}
		}
	}
	return r
}

func (n *modelNode) HasDedicatedImageFs(context.Context) (bool, error) { return n.images != nil, nil }
func (n *modelNode) HasDedicatedContainerFs(context.Context) (bool, error) {
	return false, errors.New("no container file system")
}

func (n *modelNode) Event(runtime.Object, string, string, string)          {}
func (n *modelNode) Eventf(runtime.Object, string, string, string, ...any) {}

func (n *modelNode) active() (list []*v1.Pod) {
	defer n.locked()()
	for _, p := range n.pods {
		if p.here() {
			list = append(list, p.object)
		}
	}
	return list
}

func (n *modelNode) ended(uid types.UID) bool {
	defer n.locked()()
	p := n.byUID[uid]
	if p.dead() && p.foundAt.IsZero() {
		p.foundAt = n.at
	}
	return p.dead()
}

func (n *modelNode) activePod(uid types.UID) (*v1.Pod, bool) {
	defer n.locked()()
	p := n.byUID[uid]
	if p == nil {
		n.fail(inForce, "%s is not on the node", uid)
		return nil, false
	}
	return p.object, p.here()
}

func (n *modelNode) cleanedUp(uid types.UID) bool {
	defer n.locked()()
	return n.byUID[uid].clean
}

func (n *modelNode) stopping(uid types.UID) bool {
	defer n.locked()()
	p := n.byUID[uid]
	return len(p.orders) > 0 || p.deleted
}
