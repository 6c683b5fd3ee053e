package pluginchaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/test/fakekill"
	"github.com/plimsoll-project/plimsoll/test/fixture"
)

const (
	gi       = int64(1) << 30
	capacity = 64 * gi
	// hogPrefix begins the name of the pod whose memory brings the node under pressure.
	hogPrefix = "hog-"
	// stopTime is how long a pod takes to stop.
	stopTime = 5 * time.Millisecond
	podCount = 110
	skipKey  = "example.com/keep"
)

// protected are the UIDs of pods that no plugin may name.
var protected = []string{"critical-0", "critical-1", "static-0", "system-0", "skipped-0"}

// kill is one call of the pod workers.
type kill struct {
	pod, message string
	grace        int64
	at           time.Duration
}

// node is a node with 110 pods. A pod that is killed stops soon, and another one takes its place.
type node struct {
	mu    sync.Mutex
	pods  map[types.UID]*v1.Pod
	made  int
	kills []kill
	// scarce: the hog uses nearly all memory, since crossed. crossings are how long it took to kill it.
	scarce    bool
	crossed   time.Duration
	crossings []crossing
}

// crossing is when memory crossed the threshold, and when the hog was killed.
type crossing struct{ at, killed time.Duration }

func newNode() *node {
	n := &node{pods: map[types.UID]*v1.Pod{}}
	for _, name := range protected {
		n.add(name)
	}
	for i := range plugins {
		for range 6 {
			n.addNumbered(honestName(i) + "-")
		}
		for range 4 {
			n.addNumbered(baitPrefix(i))
		}
	}
	n.addNumbered(hogPrefix)
	for len(n.pods) < podCount {
		n.addNumbered("bystander-")
	}
	return n
}

func (n *node) addNumbered(prefix string) {
	n.made++
	n.add(fmt.Sprintf("%s%d", prefix, n.made))
}

// add adds a pod whose UID is its name.
func (n *node) add(name string) {
	pod := fixture.Pod(name)
	pod.Spec.NodeName, pod.Status.Phase = "node", v1.PodRunning
	pod.Labels = map[string]string{"app": name, "text": strings.Repeat("x", 60)}
	pod.Annotations = map[string]string{}
	switch kind, _, _ := strings.Cut(name, "-"); kind {
	case "critical":
		pod.Spec.Priority = new(int32(2_000_001_000))
	case "static":
		pod.Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.FileSource
	case "system":
		pod.Annotations[arbiter.QoSLevelKey] = arbiter.SystemCores
	case "skipped":
		pod.Annotations[skipKey] = ""
	case "hog":
	default:
		pod.Spec.Priority = new(int32(100))
	}
	n.pods[pod.UID] = pod
}

func (n *node) active() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]*v1.Pod, 0, len(n.pods))
	for _, pod := range n.pods {
		list = append(list, pod)
	}
	return list
}

func (n *node) byUID(uid types.UID) (*v1.Pod, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod, ok := n.pods[uid]
	return pod, ok
}

func (n *node) gone(uid types.UID) bool {
	_, here := n.byUID(uid)
	return !here
}

// kill is the function of the pod workers.
func (n *node) kill() podkill.Func {
	begin := fakekill.Waiting(func(ctx context.Context, r podkill.Request) error {
		pause(ctx.Done(), stopTime)
		n.stopped(r.Pod)
		return nil
	})
	return func(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
		n.mu.Lock()
		now := monotonic()
		n.kills = append(n.kills, kill{r.Pod.Name, r.Disruption.Message, *r.GracePeriodSeconds, now})
		if strings.HasPrefix(r.Pod.Name, hogPrefix) && n.scarce {
			n.crossings = append(n.crossings, crossing{n.crossed, now})
		}
		n.mu.Unlock()
		return begin(ctx, r)
	}
}

func (n *node) stopped(pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, here := n.pods[pod.UID]; !here {
		return
	}
	delete(n.pods, pod.UID)
	prefix := pod.Name[:strings.LastIndex(pod.Name, "-")+1]
	if prefix == hogPrefix {
		n.scarce = false
	}
	n.addNumbered(prefix)
}

// cross makes memory scarce, unless it is.
func (n *node) cross() (crossed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	crossed = !n.scarce
	if crossed {
		n.scarce, n.crossed = true, monotonic()
	}
	return crossed
}

func (n *node) recorded() ([]kill, []crossing) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.kills), slices.Clone(n.crossings)
}

func (n *node) uses(pod *v1.Pod) int64 {
	if n.scarce && strings.HasPrefix(pod.Name, hogPrefix) {
		return 28 * gi
	}
	return gi / 8
}

func (n *node) used() (sum int64) {
	for _, pod := range n.pods {
		sum += n.uses(pod)
	}
	return sum + capacity/3
}

func amount(bytes int64) *uint64 { return new(uint64(bytes)) }

// Get implements collect.Summary.
func (n *node) Get(context.Context, bool) (*statsapi.Summary, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now, used := metav1.Now(), n.used()
	fs := &statsapi.FsStats{Time: now, AvailableBytes: amount(50 * gi), CapacityBytes: amount(100 * gi)}
	memory := &statsapi.MemoryStats{Time: now, AvailableBytes: amount(capacity - used), WorkingSetBytes: amount(used)}
	s := &statsapi.Summary{Node: statsapi.NodeStats{
		Memory: memory, Fs: fs, Runtime: &statsapi.RuntimeStats{ImageFs: fs, ContainerFs: fs},
		SystemContainers: []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods, Memory: memory}},
	}}
	for uid, pod := range n.pods {
		memory := &statsapi.MemoryStats{Time: now, WorkingSetBytes: amount(n.uses(pod))}
		s.Pods = append(s.Pods, statsapi.PodStats{
			PodRef: statsapi.PodReference{UID: string(uid)}, Memory: memory,
			Containers: []statsapi.ContainerStats{{Name: "main", Memory: memory}},
		})
	}
	return s, nil
}

func (n *node) HasDedicatedImageFs(context.Context) (bool, error) { return false, nil }

func (n *node) HasDedicatedContainerFs(context.Context) (bool, error) {
	return false, errors.New("no container file system")
}

// Counters implements eviction.MemoryReader.
func (n *node) Counters(snapshot.Counting) (snapshot.MemoryCounters, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	used := snapshot.Bytes(n.used())
	return snapshot.MemoryCounters{Node: used, Pods: used}, nil
}

func (n *node) ReadMemory(snapshot.Counting) snapshot.MemoryReading {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	r := snapshot.MemoryReading{ByPod: map[types.UID]*snapshot.Memory{}}
	r.Node = snapshot.Observation{Available: capacity - n.used(), Capacity: capacity, At: now}
	r.Pods = r.Node
	for uid, pod := range n.pods {
		r.ByPod[uid] = &snapshot.Memory{WorkingSet: snapshot.Known(snapshot.Bytes(n.uses(pod)), now)}
	}
	return r
}

// Reclaim implements eviction.Reclaimer.
func (n *node) Reclaim(context.Context, policy.ReclaimRequest) (snapshot.Reclaimed, error) {
	return snapshot.Reclaimed{}, nil
}
