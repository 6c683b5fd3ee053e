// Package crossing measures the time from the crossing of a memory threshold to the fence of the pod that causes it:
// with the eviction manager, the reader of memory, the fences and the kill by the cgroup of the agent, on cgroups of
// the kernel, without a container runtime and an API server. Pods are processes in cgroups, and the pod workers are a
// function that sends no signal before the runtime's least grace period.
package crossing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/cgroupkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/fence"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/exacttimer"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const mebibyte = int64(1) << 20

// Config says what is measured. Amounts are in MiB.
type Config struct {
	// Hog is the program that uses memory.
	Hog string
	// Pods is the number of pods beside the hog, Crossings how often a hog meets the threshold.
	Pods, Crossings int
	// Observer is the program of BuildObserver, which sees when the threshold is met. If Simplest, it also sets the
	// fences, instead of the eviction manager.
	Observer string
	Simplest bool
	// Memory is the limit of all pods, Headroom the threshold, Distance what is left above it before the hog grows, Rate
	// its growth in a second.
	Memory, Headroom, Distance, Rate int64
	// SmallPages is whether the hog grows without huge pages.
	SmallPages bool
	// Rest is how long a hog rests before it grows: longer than the eviction manager takes to find its cgroup, and until
	// the reads for the last crossing are paid for, which delay those for the next one.
	Rest time.Duration
	// Log receives progress; nil discards it.
	Log io.Writer
}

// Crossing is one crossing of the threshold. Times are since the observer last saw that the threshold was not met: a
// millisecond too long at most or, while the observer waits for a CPU, more.
type Crossing struct {
	// Fenced is nil if no fence was set.
	Fenced *time.Duration
	Ended  time.Duration
}

// String describes the crossing for the log.
func (c Crossing) String() string {
	if c.Fenced == nil {
		return fmt.Sprintf("not fenced, ended after %v", c.Ended)
	}
	return fmt.Sprintf("fenced after %v, ended after %v", *c.Fenced, c.Ended)
}

// grace is how long the function that stands in for the pod workers leaves a pod.
const grace = 2 * time.Second

// Measure measures. It needs root.
func Measure(ctx context.Context, c Config) (list []Crossing, err error) {
	if c.Log == nil {
		c.Log = io.Discard
	}
	if err := yieldMonitor(); err != nil {
		return nil, err
	}
	n, err := newNode(c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.remove()) }()
	fmt.Fprintf(c.Log, "starting %d pods\n", c.Pods)
	for i := range c.Pods {
		if _, err := n.start(fmt.Sprintf("idle-%d", i), "--start=1", "--limit=1"); err != nil {
			return nil, err
		}
	}
	if !c.Simplest {
		stop, err := n.manage(ctx)
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	for i := range c.Crossings {
		crossing, err := n.cross(ctx, fmt.Sprintf("hog-%d", i))
		if err != nil {
			return list, err
		}
		list = append(list, crossing)
		fmt.Fprintf(c.Log, "%3d %v\n", i, crossing)
	}
	return list, nil
}

// node is the cgroup of all pods, and the pods.
type node struct {
	config Config
	// root is the path of the parent of the cgroup of all pods.
	root string
	// own is the directory of the cgroup that this process came from, empty before it left that.
	own string
	// mounts are the mount points of the controllers; unified is whether they have one hierarchy.
	mounts  map[string]string
	unified bool
	files   kit.CgroupMemory
	fencer  *fence.Fencer
	killer  *cgroupkill.Killer
	memory  *collect.Memory
	manager *eviction.Manager

	mu   sync.Mutex
	pods []*process
}

// process is a pod: a process in a cgroup.
type process struct {
	pod *v1.Pod
	// cgroup is the path of the pod's cgroup.
	cgroup string
	proc   *os.Process
	// ended is closed when the process has ended, after endedAt is set.
	ended chan struct{}
	// fencedAt is when the fence was set, zero for never, endedAt when the process ended, by the monotonic clock of the
	// kernel in nanoseconds.
	fencedAt, endedAt atomic.Int64
}

// controllers are the controllers that the measured parts use, and that of CPU shares. On v2 all have one hierarchy.
var controllers = []string{"memory", "pids", "freezer", "cpu"}

func newNode(c Config) (*node, error) {
	n := &node{config: c, root: fmt.Sprintf("/plimsoll-crossing-%d", os.Getpid()), mounts: map[string]string{}}
	n.unified = util.IsCgroup2UnifiedMode()
	for _, controller := range controllers {
		n.mounts[controller] = filepath.Join("/sys/fs/cgroup", controller)
		if n.unified {
			n.mounts[controller] = "/sys/fs/cgroup"
		}
	}
	for _, cgroup := range []string{"", n.root, n.all(), n.all() + "/besteffort"} {
		if err := n.makeCgroup(cgroup); err != nil {
			return nil, errors.Join(err, n.remove())
		}
	}
	var err error
	if n.files, err = kit.FindCgroupMemory(n.all()); err != nil {
		return nil, errors.Join(err, n.remove())
	}
	limit := filepath.Join(n.files.Pods, n.files.Limit)
	if err := os.WriteFile(limit, []byte(strconv.FormatInt(c.Memory*mebibyte, 10)), 0); err != nil {
		return nil, errors.Join(err, n.remove())
	}
	if err := n.setShares(); err != nil {
		return nil, errors.Join(err, n.remove())
	}
	n.fencer = fence.New(fence.Config{Unified: n.unified, Mounts: n.mounts})
	n.killer = cgroupkill.New(cgroupkill.Config{Unified: n.unified, Mounts: n.mounts})
	n.memory, err = collect.NewMemory(collect.Options{PodsCgroup: n.all()})
	if err != nil {
		return nil, errors.Join(err, n.remove())
	}
	return n, nil
}

// hierarchies are the mount points, each once.
func (n *node) hierarchies() []string { return slices.Compact(slices.Sorted(maps.Values(n.mounts))) }

// makeCgroup makes a cgroup that has others below it.
func (n *node) makeCgroup(path string) error {
	for _, mount := range n.hierarchies() {
		dir := filepath.Join(mount, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if !n.unified {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory +pids +cpu"), 0); err != nil {
			return err
		}
	}
	return nil
}

// all is the path of the cgroup of all pods.
func (n *node) all() string { return n.root + "/kubepods" }

// start starts the program in a new pod.
func (n *node) start(name string, args ...string) (*process, error) {
	p := &process{
		pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
			Status:     v1.PodStatus{Phase: v1.PodRunning, QOSClass: v1.PodQOSBestEffort},
		},
		ended: make(chan struct{}),
	}
	p.cgroup = n.all() + "/besteffort/pod" + string(p.pod.UID)
	if err := n.makeCgroup(p.cgroup); err != nil {
		return nil, err
	}
	script := ""
	for _, mount := range n.hierarchies() {
		dir := filepath.Join(mount, p.cgroup, "main")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		script += "echo $$ >" + dir + "/cgroup.procs && "
	}
	argv := append([]string{"sh", "-c", script + `exec "$0" "$@"`, n.config.Hog}, args...)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	p.proc, err = os.StartProcess("/bin/sh", argv, &os.ProcAttr{Files: []*os.File{null, null, os.Stderr}})
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_, _ = p.proc.Wait() // It was killed.
		p.endedAt.Store(monotonic())
	}()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = append(n.pods, p)
	return p, nil
}

// end kills the process, and removes the pod.
func (n *node) end(p *process) error {
	_ = p.proc.Kill() // It may have ended.
	<-p.ended
	n.mu.Lock()
	n.pods = slices.DeleteFunc(n.pods, func(q *process) bool { return q == p })
	n.mu.Unlock()
	return n.removeCgroups(p.cgroup)
}

// remove ends all processes, and removes all cgroups.
func (n *node) remove() error {
	n.mu.Lock()
	pods := slices.Clone(n.pods)
	n.mu.Unlock()
	var errs []error
	for _, p := range pods {
		errs = append(errs, n.end(p))
	}
	if n.own != "" {
		errs = append(errs, enter(n.own))
	}
	return errors.Join(append(errs, n.removeCgroups(n.root))...)
}

// removeCgroups removes a cgroup and those below it, for a short time again while the kernel still uses them.
func (n *node) removeCgroups(path string) error {
	var errs []error
	for _, mount := range n.hierarchies() {
		var dirs []string
		err := filepath.WalkDir(filepath.Join(mount, path), func(dir string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, dir)
			}
			return nil
		})
		errs = append(errs, err)
		for _, dir := range slices.Backward(dirs) {
			err := os.Remove(dir)
			for tries := 0; tries < 100 && errors.Is(err, unix.EBUSY); tries++ {
				<-time.After(20 * time.Millisecond)
				err = os.Remove(dir)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// find returns the pod with that UID, nil for none.
func (n *node) find(uid types.UID) *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.pod.UID == uid {
			return p
		}
	}
	return nil
}

// manage runs the eviction manager and the writer of the fences until stop is called.
func (n *node) manage(ctx context.Context) (stop func(), err error) {
	thresholds, err := settings.ParseThresholds(settings.ThresholdConfig{
		AllocatableEnforced: []string{"pods"},
		Hard:                map[string]string{"memory.available": fmt.Sprintf("%dMi", n.config.Headroom)},
	})
	if err != nil {
		return nil, err
	}
	timer, err := exacttimer.New()
	if err != nil {
		return nil, err
	}
	options := settings.DefaultOptions()
	options.Fence = true
	n.manager, err = eviction.New(eviction.Config{
		Collector: n, Kill: n.kill, ActivePods: n.active, PodByUID: n.podByUID, PodStopped: n.stopped,
		PodCleanedUp: n.stopped, Reclaimer: n, Recorder: &record.FakeRecorder{},
		NodeRef: &v1.ObjectReference{Kind: "Node", Name: "node"}, Clock: clock.RealClock{},
		Kubelet: settings.Kubelet{Thresholds: thresholds, PressureTransitionPeriod: time.Millisecond},
		Options: &options, Memory: n.memory, Fencer: fencer{n}, NewAlarm: func() eviction.Alarm { return timer },
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { n.fencer.Run(ctx) })
	running.Go(func() { n.manager.Run(ctx) })
	return func() { cancel(); running.Wait() }, nil
}

func (n *node) active() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var pods []*v1.Pod
	for _, p := range n.pods {
		select {
		case <-p.ended:
		default:
			pods = append(pods, p.pod)
		}
	}
	return pods
}

func (n *node) podByUID(uid types.UID) (*v1.Pod, bool) {
	if p := n.find(uid); p != nil {
		return p.pod, true
	}
	return nil, false
}

func (n *node) stopped(uid types.UID) bool {
	p := n.find(uid)
	if p == nil {
		return true
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill stands in for the pod workers.
func (n *node) kill(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
	p := n.find(r.Pod.UID)
	if p == nil {
		return podkill.AlreadyStopped, podkill.Ended(podkill.Ending{Outcome: podkill.Stopped})
	}
	ended := make(chan podkill.Ending, 1)
	go func() {
		select {
		case <-p.ended:
		case <-ctx.Done():
		case <-time.After(grace):
			_ = p.proc.Kill() // It may have ended.
			<-p.ended
		}
		ended <- podkill.Ending{Outcome: podkill.Stopped}
	}()
	return podkill.Begun, ended
}

// Collect implements eviction.Collector: only memory is observed.
func (n *node) Collect(context.Context) snapshot.Stats {
	s := snapshot.Stats{Signals: snapshot.Unobserved(), Pods: noStats{}}
	r := n.memory.ReadMemory(snapshot.Counting{})
	s.Signals[snapshot.MemoryAvailable], s.Signals[snapshot.AllocatableMemoryAvailable] = r.Node, r.Pods
	return s
}

// CollectNode implements eviction.Collector: only memory is observed, which the manager reads itself.
func (n *node) CollectNode(context.Context) snapshot.Stats {
	return snapshot.Stats{Signals: snapshot.Unobserved()}
}

// CollectLocal implements eviction.Collector.
func (n *node) CollectLocal(ctx context.Context, _ snapshot.Layout) snapshot.Stats {
	return n.Collect(ctx)
}

// Reclaim implements eviction.Reclaimer: there is nothing to reclaim.
func (n *node) Reclaim(context.Context, policy.ReclaimRequest) (snapshot.Reclaimed, error) {
	return snapshot.Reclaimed{}, nil
}

// noStats are the stats of no pod.
type noStats struct{}

func (noStats) Len() int                         { return 0 }
func (noStats) UID(int) string                   { return "" }
func (noStats) Usages(int, int) []snapshot.Usage { return nil }

// fencer connects the manager with fences, as the agent does.
type fencer struct{ *node }

func (f fencer) Prepare(pod *v1.Pod) {
	if p := f.find(pod.UID); p != nil {
		f.fencer.Prepare(p.cgroup)
	}
}

func (f fencer) Fence(pod *v1.Pod, l policy.Fence) (eviction.Fence, error) {
	p := f.find(pod.UID)
	if p == nil {
		return nil, nil
	}
	set, err := f.fencer.Fence(p.cgroup, fence.Limits{Slack: int64(l.Slack)})
	if fence.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p.fencedAt.CompareAndSwap(0, monotonic())
	return setFence{set}, nil
}

func (f fencer) Kill(ctx context.Context, pod *v1.Pod) error {
	if p := f.find(pod.UID); p != nil {
		return f.killer.Kill(ctx, p.cgroup)
	}
	return nil
}

type setFence struct{ *fence.Fence }

func (f setFence) Check() (eviction.FenceState, error) {
	s, err := f.Fence.Check()
	return eviction.FenceState(s), err
}

// available is what all pods may still use, in MiB, without page cache: these pods have little.
func (n *node) available() (int64, error) {
	used, err := n.number(n.all(), n.files.Usage)
	return n.config.Memory - used/mebibyte, err
}

// number reads a file of the memory controller, of a cgroup of pods.
func (n *node) number(cgroup, name string) (int64, error) {
	return kit.ReadCgroupNumber(filepath.Join(n.mounts["memory"], cgroup), name)
}

// monotonic returns the monotonic time of the kernel in nanoseconds.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // The kernel has this clock.
	}
	return t.Nano()
}

// await polls each millisecond until done returns true or an error, at most for a time.
func await(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-ticker.C:
		}
	}
}

// hog starts a hog, and waits until it rests.
func (n *node) hog(ctx context.Context, name string) (*process, error) {
	left, err := n.available()
	if err != nil {
		return nil, err
	}
	start := left - n.config.Headroom - n.config.Distance
	p, err := n.start(name, fmt.Sprintf("--start=%d", start), fmt.Sprintf("--rate=%d", n.config.Rate),
		fmt.Sprintf("--limit=%d", 2*n.config.Memory), "--step=1ms", "--deaf", "--signal",
		fmt.Sprintf("--small-pages=%t", n.config.SmallPages))
	if err != nil {
		return nil, err
	}
	err = await(ctx, time.Minute, "the hog to rest", func() (bool, error) {
		used, err := n.number(p.cgroup, n.files.Usage)
		return used >= start*mebibyte, err
	})
	if err != nil {
		return nil, errors.Join(err, n.end(p))
	}
	<-time.After(n.config.Rest)
	return p, nil
}

// cross has a hog meet the threshold, and waits until it has ended and nothing is under pressure. Meanwhile this
// process reads nothing: the eviction manager, which is part of it, would wait for that.
func (n *node) cross(ctx context.Context, name string) (c Crossing, err error) {
	p, err := n.hog(ctx, name)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, n.end(p)) }()
	threshold, err := n.threshold()
	if err != nil {
		return c, err
	}
	watch, err := n.observe(ctx, threshold)
	if err != nil {
		return c, err
	}
	defer watch.stop()
	var simplest *observer
	if n.config.Simplest {
		if simplest, err = n.fence(ctx, p, threshold); err != nil {
			return c, err
		}
		defer simplest.stop()
	}
	if err := p.proc.Signal(unix.SIGUSR1); err != nil {
		return c, err
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		return c, ctx.Err()
	case <-time.After(hogTime):
		return c, fmt.Errorf("%s has not ended after %v", name, hogTime)
	}
	crossed, ok := watch.stop()
	if !ok {
		return c, fmt.Errorf("%s has ended before it was seen to meet the threshold", name)
	}
	c.Ended = time.Duration(p.endedAt.Load() - crossed)
	if simplest != nil {
		if at, ok := simplest.stop(); ok {
			p.fencedAt.Store(at)
		}
	}
	if n.manager != nil {
		err = await(ctx, time.Minute, "the end of pressure", func() (bool, error) {
			return !n.manager.IsUnderMemoryPressure(), nil
		})
	}
	if fenced := p.fencedAt.Load(); fenced > 0 {
		c.Fenced = new(time.Duration(fenced - crossed))
	}
	return c, err
}

// hogTime is how long a hog may take to end.
const hogTime = 3 * time.Minute

// threshold returns the usage of all pods, in bytes, at which the threshold is met: page cache that counts as available
// is part of that usage. It is read as the eviction manager does: statistics of the kernel lag otherwise, and a huge
// page later is 20 ms later.
func (n *node) threshold() (int64, error) {
	r := n.memory.ReadMemory(snapshot.Counting{}).Pods
	usage, err := n.number(n.all(), n.files.Usage)
	return usage + r.Available - n.config.Headroom*mebibyte, errors.Join(err, r.Err)
}
