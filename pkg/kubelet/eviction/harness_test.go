package eviction

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
	"github.com/plimsoll-project/plimsoll/test/fakekill"
)

const (
	mi = int64(1) << 20
	gi = int64(1) << 30
)

// node is a fake node: it has pods that use memory, disk and PIDs, and all that the manager asks for. It must be used
// inside a synctest bubble; its clock is the bubble's.
type node struct {
	mu       sync.Mutex
	capacity int64
	system   int64
	disk     diskState
	pods     map[string]*fakePod
	events   []string
	kills    []string
	statuses map[string]*v1.PodStatus
	// killTakes is how long a kill takes, killErrs makes the kill of a pod fail.
	killTakes time.Duration
	killErrs  map[string]error
	// uncleaned pods keep what they use after they were killed.
	uncleaned  map[string]bool
	summaryErr error
	layoutErr  error
	// images is a disk of their own for images and writable layers, nil when they lie on the other one.
	images *diskState
	// setting is how far the runtime's time of day, by which the stats of images are dated, is set forward.
	setting   time.Duration
	reclaimed []string
	freedByGC int64
	// targets are those of the node-level reclaims.
	targets []int64
	// hang makes the summary block until it is closed, or until timeout if that is not zero.
	hang    chan struct{}
	timeout time.Duration
	changes int
}

type diskState struct{ capacity, used int64 }

type fakePod struct {
	object *v1.Pod
	// disk is what is in the writable layer, logs what lies on the node's disk in any case.
	memory, disk, logs int64
	stopped            bool
	// growth is in bytes per second, since. It is by whole steps, in bytes, unless step is zero.
	growth, step int64
	since        time.Time
	// cached is clean page cache on top of memory, seen only by readers of the kernel.
	cached int64
	// caching is by how much that grows, in bytes per second, since.
	caching int64
	// unseen: the summary has stats of the pod from before it began to use memory.
	unseen bool
}

// uses is the working set.
func (p *fakePod) uses() int64 {
	if p.growth == 0 {
		return p.memory
	}
	grown := int64(float64(p.growth) * time.Since(p.since).Seconds())
	if p.step > 0 {
		grown = (grown + p.step - 1) / p.step * p.step
	}
	return p.memory + grown
}

// cache is the page cache.
func (p *fakePod) cache() int64 {
	if p.caching == 0 {
		return p.cached
	}
	return p.cached + int64(float64(p.caching)*time.Since(p.since).Seconds())
}

// grows lets a pod's memory grow from now on.
func (n *node) grows(name string, rate int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[name].growth, n.pods[name].since = rate, time.Now()
}

func newNode() *node {
	return &node{capacity: 32 * gi, disk: diskState{capacity: 100 * gi}, pods: map[string]*fakePod{},
		statuses: map[string]*v1.PodStatus{}, killErrs: map[string]error{}, uncleaned: map[string]bool{}}
}

func (n *node) add(name string, memory int64, change ...func(*v1.Pod)) *fakePod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	for _, f := range change {
		f(pod)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &fakePod{object: pod, memory: memory}
	n.pods[name] = p
	return p
}

func priority(p int32) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Spec.Priority = &p } }

func grace(seconds int64) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = &seconds }
}

func memoryRequest(amount int64) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(amount,
			resource.BinarySI)}
	}
}

// available sets the system's share so that this much memory is available.
func (n *node) available(amount int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.system = n.capacity - n.used() - amount
}

func (n *node) used() (sum int64) {
	for name, p := range n.pods {
		if !p.stopped || n.uncleaned[name] {
			sum += p.uses()
		}
	}
	return sum
}

func u(n int64) *uint64 { v := uint64(n); return &v }

func (n *node) Get(ctx context.Context, _ bool) (*statsapi.Summary, error) {
	n.mu.Lock()
	hang, timeout := n.hang, (<-chan time.Time)(nil)
	if n.timeout > 0 {
		timeout = time.After(n.timeout)
	}
	n.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-timeout:
			return nil, context.DeadlineExceeded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.summaryErr != nil {
		return nil, n.summaryErr
	}
	at := metav1.Now()
	fs := &statsapi.FsStats{Time: at, AvailableBytes: u(n.disk.capacity - n.disk.used), CapacityBytes: u(n.disk.capacity)}
	imageFs := fs
	if n.images != nil {
		imageFs = &statsapi.FsStats{
			Time:           metav1.NewTime(at.Round(0).Add(n.setting)),
			AvailableBytes: u(n.images.capacity - n.images.used), CapacityBytes: u(n.images.capacity),
		}
	}
	s := &statsapi.Summary{Node: statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{Time: at, AvailableBytes: u(n.capacity - n.system - n.used()),
			WorkingSetBytes: u(n.system + n.used())},
		Fs: fs, Runtime: &statsapi.RuntimeStats{ImageFs: imageFs, ContainerFs: imageFs},
		SystemContainers: []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods,
			Memory: &statsapi.MemoryStats{Time: at, AvailableBytes: u(n.capacity - n.used()), WorkingSetBytes: u(n.used())}}},
	}}
	for _, p := range n.pods {
		if p.stopped {
			continue
		}
		memory := &statsapi.MemoryStats{Time: at, WorkingSetBytes: u(p.uses())}
		if p.unseen {
			memory.WorkingSetBytes = u(0)
		}
		s.Pods = append(s.Pods, statsapi.PodStats{
			PodRef: statsapi.PodReference{UID: string(p.object.UID)}, Memory: memory,
			Containers: []statsapi.ContainerStats{{Name: "c", Memory: memory,
				Rootfs: &statsapi.FsStats{Time: at, UsedBytes: u(p.disk)},
				Logs:   &statsapi.FsStats{Time: at, UsedBytes: u(p.logs)}}},
		})
	}
	return s, nil
}

func (n *node) RootFsStats() (*statsapi.FsStats, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.summaryErr != nil {
		return nil, n.summaryErr
	}
	return &statsapi.FsStats{Time: metav1.Now(), AvailableBytes: u(n.disk.capacity - n.disk.used),
		CapacityBytes: u(n.disk.capacity)}, nil
}

func (n *node) RlimitStats() (*statsapi.RlimitStats, error) { return nil, nil }

func (n *node) ImageFsStats(ctx context.Context) (images, containers *statsapi.FsStats, err error) {
	s, err := n.Get(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	return s.Node.Runtime.ImageFs, s.Node.Runtime.ContainerFs, nil
}

func (n *node) ListPodStats(ctx context.Context) ([]statsapi.PodStats, error) {
	s, err := n.Get(ctx, false)
	if err != nil {
		return nil, err
	}
	return s.Pods, nil
}

// hugePage is the size of a huge page: the kernel charges as much at once.
const hugePage = 2 * mi

// kernel is what a memorywatch.Reader sees of the node.
type kernel struct {
	*node
	counterReads, readings int
	// partial is the number of readings of some pods.
	partial int
	// reading, unless it is nil, is called by the loop with each read of the counters; the node is locked.
	reading func()
}

func (k *kernel) cache() (sum int64) {
	for _, p := range k.pods {
		if !p.stopped {
			sum += p.cache()
		}
	}
	return sum
}

func (k *kernel) Counters(snapshot.Counting) (snapshot.MemoryCounters, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counterReads++
	if k.reading != nil {
		k.reading()
	}
	used, cache := k.used(), k.cache()
	return snapshot.MemoryCounters{Node: snapshot.Bytes(k.system + used + cache), Pods: snapshot.Bytes(used + cache),
		NodeSpare: snapshot.Bytes(cache), NodeCapacity: snapshot.Bytes(k.capacity), At: time.Now()}, nil
}

func (k *kernel) ReadMemory(snapshot.Counting) snapshot.MemoryReading {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.readings++
	now, used := time.Now(), k.used()
	r := snapshot.MemoryReading{ByPod: map[types.UID]*snapshot.Memory{}, PodsUsed: snapshot.Bytes(used + k.cache())}
	r.Node = snapshot.Observation{Available: k.capacity - k.system - used, Capacity: k.capacity, At: now}
	r.Pods = snapshot.Observation{Available: k.capacity - used, Capacity: k.capacity, At: now}
	for _, p := range k.pods {
		if !p.stopped {
			r.ByPod[p.object.UID] = &snapshot.Memory{WorkingSet: snapshot.Known(snapshot.Bytes(p.uses()), now)}
		}
	}
	return r
}

// PodUsages, ReadPod and ReadPods make a kernel a memorywatch.PodReader.
func (k *kernel) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(k.pods)) {
		if p := k.pods[name]; !p.stopped {
			into = append(into, snapshot.PodUsage{UID: p.object.UID, Usage: snapshot.Bytes(p.uses() + p.cache())})
		}
	}
	return into
}

func (k *kernel) ReadPod(_ snapshot.Counting, uid types.UID) (r snapshot.PodMemory, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r.Resident = snapshot.Bytes(k.pods[string(uid)].uses())
	r.WorkingSet = snapshot.Known(r.Resident, time.Now())
	return r, nil
}

func (k *kernel) ReadPods(_ snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	r := k.ReadMemory(snapshot.Counting{})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.readings--
	k.partial++
	return onlyPods(r, uids)
}

// onlyPods leaves out the other pods. A reader that changes ReadMemory of a kernel uses it for ReadPods.
func onlyPods(r snapshot.MemoryReading, uids []types.UID) snapshot.MemoryReading {
	maps.DeleteFunc(r.ByPod, func(uid types.UID, _ *snapshot.Memory) bool { return !slices.Contains(uids, uid) })
	return r
}

func (n *node) HasDedicatedImageFs(context.Context) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.images != nil, n.layoutErr
}

func (n *node) HasDedicatedContainerFs(context.Context) (bool, error) {
	return false, errors.New("no container file system")
}

func (n *node) Event(_ runtime.Object, _, reason, message string) { n.record(reason, message) }
func (n *node) Eventf(_ runtime.Object, _, reason, f string, a ...any) {
	n.record(reason, fmt.Sprintf(f, a...))
}

func (n *node) AnnotatedEventf(_ runtime.Object, annotations map[string]string, _, reason, f string, a ...any) {
	n.record(reason, fmt.Sprintf(f, a...)+fmt.Sprint(annotations))
}

func (n *node) record(reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, reason+": "+message)
}

func (n *node) Reclaim(_ context.Context, q policy.ReclaimRequest) (snapshot.Reclaimed, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.disk.used
	if q.Containers {
		n.reclaimed = append(n.reclaimed, "containers")
		n.disk.used -= n.freedByGC
	}
	if q.Images {
		n.reclaimed = append(n.reclaimed, "images")
		n.disk.used -= n.freedByGC
	}
	n.targets = append(n.targets, q.Target)
	return snapshot.Reclaimed{Freed: before - n.disk.used}, nil
}

// kill stops a pod and returns when it has stopped; apply writes the reason into its status.
func (n *node) kill(ctx context.Context, pod *v1.Pod, graceSeconds int64, apply func(*v1.PodStatus)) error {
	n.mu.Lock()
	n.kills = append(n.kills, fmt.Sprintf("%s/%d", pod.Name, graceSeconds))
	takes, err := n.killTakes, n.killErrs[pod.Name]
	n.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	status := pod.Status.DeepCopy()
	apply(status)
	n.statuses[pod.Name] = status
	p := n.pods[pod.Name]
	if !p.stopped {
		if n.images != nil {
			n.images.used -= p.disk
		} else {
			n.disk.used -= p.disk
		}
		n.disk.used -= p.logs
	}
	p.stopped = true
	return nil
}

// killer is kill as the pod workers offer it: a pod that takes longer than they wait for is overdue, and goes on
// terminating.
func (n *node) killer() podkill.Func {
	waiting := fakekill.Waiting(func(ctx context.Context, r podkill.Request) error {
		return n.kill(ctx, r.Pod, *r.GracePeriodSeconds, r.Disruption.Apply)
	})
	return func(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
		answer, stopped := waiting(ctx, r)
		ended := make(chan podkill.Ending, 1)
		go func() {
			timeout := time.NewTimer(max(10*time.Second, time.Duration(*r.GracePeriodSeconds)*time.Second*3/2))
			defer timeout.Stop()
			select {
			case e := <-stopped:
				ended <- e
			case <-timeout.C:
				ended <- podkill.Ending{Outcome: podkill.Overdue, Err: errors.New("overdue")}
			}
		}()
		return answer, ended
	}
}

func (n *node) isStopped(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, known := n.pods[string(uid)]
	return !known || p.stopped
}

func (n *node) active() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []*v1.Pod
	for _, p := range n.pods {
		if !p.stopped {
			list = append(list, p.object)
		}
	}
	return list
}

func (n *node) byUID(uid types.UID) (*v1.Pod, bool) { return podByUID(n.active(), uid) }

func podByUID(pods []*v1.Pod, uid types.UID) (*v1.Pod, bool) {
	i := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return pod.UID == uid })
	if i < 0 {
		return nil, false
	}
	return pods[i], true
}

func (n *node) cleanedUp(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, known := n.pods[string(uid)]
	return !known || p.stopped && !n.uncleaned[string(uid)]
}

func (n *node) killed() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.kills)
}

func (n *node) eventsOf(reason string) (list []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.events {
		if strings.HasPrefix(e, reason+": ") {
			list = append(list, strings.TrimPrefix(e, reason+": "))
		}
	}
	return list
}

// collector reads this summary, and the layout of the node.
func (n *node) collector(t *testing.T, summary collect.Summary) Collector {
	return collectorOf(t, collect.Sources{Summary: summary, DiskInfo: n, Parts: n})
}

func collectorOf(t *testing.T, s collect.Sources) Collector {
	t.Helper()
	c, err := collect.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (n *node) config(t *testing.T, thresholds settings.ThresholdConfig) Config {
	parsed, err := settings.ParseThresholds(thresholds)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Collector: n.collector(t, n), Reclaimer: n, Recorder: n, Kill: n.killer(), ActivePods: n.active, PodByUID: n.byUID,
		PodStopped: n.isStopped, PodCleanedUp: n.cleanedUp, Features: stockFeatures(),
		NodeRef: &v1.ObjectReference{Kind: "Node", Name: "node"}, Clock: clock.RealClock{},
		Kubelet: settings.Kubelet{Thresholds: parsed, PressureTransitionPeriod: 5 * time.Minute,
			MaxPodGracePeriodSeconds: 60},
		Sinks: []Sink{OnConditionTrue("changes", func() { n.mu.Lock(); n.changes++; n.mu.Unlock() })},
	}
}

// run lets a manager run in a bubble while the test plays; it proves that nothing is left when it ends.
func run(t *testing.T, n *node, config Config, play func(m *Manager, wait func(time.Duration))) {
	m, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	play(m, func(d time.Duration) { <-time.After(d); synctest.Wait() })
	cancel()
	<-done
}

func hard(memory string) settings.ThresholdConfig {
	return settings.ThresholdConfig{Hard: map[string]string{"memory.available": memory}}
}
