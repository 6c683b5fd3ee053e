package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// node is a fake node: its pods, and the requests to stop them. A pod that is to be stopped runs until the case ends
// it.
type node struct {
	mu       sync.Mutex
	pods     []*v1.Pod
	requests []podkill.Request
	endings  map[types.UID][]chan podkill.Ending
	// stats returns what is observed; nothing if it is nil.
	stats func() snapshot.Stats
}

// pod is a running pod whose name is its UID, with a grace period of 30 s.
func pod(name string, changes ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name), Annotations: map[string]string{},
			Labels: map[string]string{}},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "c", Image: "image"}}, TerminationGracePeriodSeconds: new(int64(30)),
			Priority: new(int32(0)),
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// pods are pods with these names.
func pods(names ...string) (list []*v1.Pod) {
	for _, name := range names {
		list = append(list, pod(name))
	}
	return list
}

func priority(p int32) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Spec.Priority = &p } }

func annotated(key, value string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Annotations[key] = value }
}

func labelled(key string) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Labels[key] = "" } }

func owned(kind string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: new(true)}}
	}
}

// kill implements podkill.Func.
func (n *node) kill(_ context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests = append(n.requests, r)
	ended := make(chan podkill.Ending, 1)
	if n.endings == nil {
		n.endings = map[types.UID][]chan podkill.Ending{}
	}
	before := len(n.endings[r.Pod.UID])
	n.endings[r.Pod.UID] = append(n.endings[r.Pod.UID], ended)
	if before > 0 {
		return podkill.Hastened, ended
	}
	return podkill.Begun, ended
}

// end stops a pod. All that it used is released at once.
func (n *node) end(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = slices.DeleteFunc(n.pods, func(pod *v1.Pod) bool { return pod.Name == name })
	n.answer(name, podkill.Ending{Outcome: podkill.Stopped})
}

// fail ends the wait for a pod, which goes on running.
func (n *node) fail(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer(name, podkill.Ending{Outcome: podkill.Failed, Err: errors.New("does not stop")})
}

// endAll stops the pods that still terminate.
func (n *node) endAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid := range n.endings {
		n.answer(string(uid), podkill.Ending{Outcome: podkill.Stopped})
	}
}

func (n *node) answer(name string, e podkill.Ending) {
	for _, ended := range n.endings[types.UID(name)] {
		ended <- e
	}
	delete(n.endings, types.UID(name))
}

// killed are the requests to stop pods, each as name/grace period, in the order of these texts.
func (n *node) killed() (list []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.requests {
		list = append(list, fmt.Sprintf("%s/%d", r.Pod.Name, *r.GracePeriodSeconds))
	}
	slices.Sort(list)
	return list
}

// disruption is what the status of a pod reports that was requested to stop.
func (n *node) disruption(name string) *podkill.Disruption {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.requests {
		if r.Pod.Name == name && r.Evict {
			return r.Disruption
		}
	}
	return &podkill.Disruption{}
}

func (n *node) active() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.pods)
}

func (n *node) byUID(uid types.UID) (*v1.Pod, bool) {
	for _, pod := range n.active() {
		if pod.UID == uid {
			return pod, true
		}
	}
	return nil, false
}

func (n *node) gone(uid types.UID) bool {
	_, here := n.byUID(uid)
	return !here
}

// Collect implements eviction.Collector.
func (n *node) Collect(context.Context) snapshot.Stats {
	if n.stats != nil {
		return n.stats()
	}
	return snapshot.Stats{Signals: snapshot.Unobserved()}
}

// CollectNode implements eviction.Collector.
func (n *node) CollectNode(ctx context.Context) snapshot.Stats { return n.Collect(ctx) }

// CollectLocal implements eviction.Collector.
func (n *node) CollectLocal(ctx context.Context, _ snapshot.Layout) snapshot.Stats {
	return n.Collect(ctx)
}

// Reclaim implements eviction.Reclaimer.
func (n *node) Reclaim(context.Context, policy.ReclaimRequest) (snapshot.Reclaimed, error) {
	return snapshot.Reclaimed{}, nil
}

// after is a channel that receives after a minute, which is far more than anything takes.
func after() <-chan time.Time { return time.After(time.Minute) }
