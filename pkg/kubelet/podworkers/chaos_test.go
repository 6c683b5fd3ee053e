package podworkers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// faultyRuntime is a runtime whose operations take time, hang until they are cancelled, or fail. It records which pods
// run.
type faultyRuntime struct {
	t  testing.TB
	mu sync.Mutex
	// rand is used under mu; the order of calls, and so the history, depends on the scheduler.
	rand *rand.Rand
	// healthy makes all operations succeed.
	healthy bool
	running map[types.UID]string
	stopped map[types.UID]bool
}

func newFaultyRuntime(t testing.TB, seed int64) *faultyRuntime {
	return &faultyRuntime{t: t, rand: rand.New(rand.NewSource(seed)), running: map[types.UID]string{},
		stopped: map[types.UID]bool{}}
}

// operation takes some time and may fail. Some operations hang until their context ends, or for five minutes.
func (c *faultyRuntime) operation(ctx context.Context) error {
	c.mu.Lock()
	calm, kind, wait := c.healthy, c.rand.Intn(6), time.Duration(c.rand.Intn(4000))*time.Millisecond
	c.mu.Unlock()
	switch {
	case calm:
		return nil
	case kind == 0:
		wait = 5 * time.Minute
	case kind == 1:
		return errors.New("chaos")
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

func (c *faultyRuntime) Sync(ctx context.Context, request podsync.SyncRequest) (podsync.SyncResult, error) {
	c.mu.Lock()
	if c.stopped[request.Pod.UID] {
		c.t.Errorf("%s is synced after its termination has begun", request.Pod.UID)
	}
	if kubetypes.IsStaticPod(request.Pod) {
		for uid, name := range c.running {
			if uid != request.Pod.UID && name == request.Pod.Name {
				c.t.Errorf("static pods %s and %s run at once", uid, request.Pod.UID)
			}
		}
		c.running[request.Pod.UID] = request.Pod.Name
	}
	terminal := c.rand.Intn(8) == 0
	c.mu.Unlock()
	return podsync.SyncResult{Terminal: terminal}, c.operation(ctx)
}

func (c *faultyRuntime) Terminate(ctx context.Context, request podsync.TerminateRequest) error {
	c.mu.Lock()
	c.stopped[request.Pod.UID] = true
	c.mu.Unlock()
	if err := c.operation(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, request.Pod.UID)
	return nil
}

func (c *faultyRuntime) Hasten(ctx context.Context, _ podsync.TerminateRequest) error {
	return c.operation(ctx)
}

func (c *faultyRuntime) TerminateRuntimePod(ctx context.Context, _ *kubecontainer.Pod) error {
	return c.operation(ctx)
}

func (c *faultyRuntime) CleanUp(ctx context.Context, pod *v1.Pod, _ *kubecontainer.PodStatus) error {
	if err := c.operation(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stopped, pod.UID) // this life is over; the UID may come again
	return nil
}

// With a faulty runtime, no pod runs that must not. When the runtime is healthy again, every termination ends, every
// waiter is notified, and nothing is left.
func TestFaultyRuntime(t *testing.T) {
	for _, hasten := range []bool{false, true} {
		t.Run(fmt.Sprintf("hasten=%t", hasten), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
					c := newFaultyRuntime(t, rapid.Int64().Draw(rt, "seed"))
					n := newNode(t, func(cfg *Config) {
						cfg.Syncer, cfg.Runtime = c, c
						if hasten {
							cfg.Hastener = c
						}
					})
					defer n.close()
					h := &history{node: n, runtime: c, desired: map[types.UID]*v1.Pod{}}
					defer h.end()
					for range rapid.IntRange(1, 40).Draw(rt, "steps") {
						h.step(rt)
					}
				})
			})
		})
	}
}

// history is the sequence of requests to the workers.
type history struct {
	node    *node
	runtime *faultyRuntime
	desired map[types.UID]*v1.Pod
	waiting []chan struct{}
	kills   sync.WaitGroup
}

func (h *history) step(t *rapid.T) {
	uid := types.UID(rapid.SampledFrom([]string{"p1", "p2", "p3", "s1", "s2", "s3"}).Draw(t, "uid"))
	pod := newPod(string(uid))
	pod.UID = uid
	if uid[0] == 's' {
		pod = staticPod("static", string(uid))
	}
	switch rapid.SampledFrom([]string{"add", "add", "update", "delete", "kill", "remove", "runtime", "housekeeping",
		"killPod"}).Draw(t, "what") {
	case "add":
		h.desired[uid] = pod
		h.node.create(pod)
	case "update":
		h.node.send(kubetypes.SyncPodUpdate, pod)
	case "delete":
		h.node.send(kubetypes.SyncPodUpdate, deleted(pod, rapid.Int64Range(0, 60).Draw(t, "grace")))
	case "kill":
		done := make(chan struct{})
		h.waiting = append(h.waiting, done)
		h.node.send(kubetypes.SyncPodKill, pod, &KillOptions{Completed: done, Evict: rapid.Bool().Draw(t, "evict"),
			GracePeriod: new(rapid.Int64Range(-1, 60).Draw(t, "grace"))})
	case "remove":
		delete(h.desired, uid)
		h.node.send(kubetypes.SyncPodKill, pod)
	case "runtime":
		h.node.UpdatePod(context.Background(), Update{UpdateType: kubetypes.SyncPodKill,
			RunningPod: &kubecontainer.Pod{ID: uid, Name: string(uid)}})
	case "killPod":
		h.kills.Go(func() { _ = h.node.kill(pod, true, nil) })
	case "housekeeping":
		h.housekeeping()
	}
	h.node.advance(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
	h.resend()
}

func (h *history) resend() {
	for _, uid := range h.node.queue.GetWork() {
		if pod, ok := h.desired[uid]; ok {
			h.node.send(kubetypes.SyncPodSync, pod)
			continue
		}
		h.node.Retry(uid)
	}
}

func (h *history) housekeeping() {
	var pods []*v1.Pod
	for _, uid := range slices.Sorted(maps.Keys(h.desired)) {
		pods = append(pods, h.desired[uid])
	}
	known := h.node.SyncKnownPods(pods)
	for _, pod := range pods {
		if _, ok := known[pod.UID]; !ok {
			h.node.create(pod)
		}
	}
}

// end makes the runtime healthy, removes all pods and checks that nothing is left.
func (h *history) end() {
	t, n := h.node.t, h.node
	h.runtime.mu.Lock()
	h.runtime.healthy = true
	h.runtime.mu.Unlock()
	clear(h.desired)
	n.advance(6 * time.Minute) // longer than an operation hangs
	for range 40 {
		h.housekeeping()
		n.advance(2 * time.Second)
	}
	h.kills.Wait()
	for i, done := range h.waiting {
		select {
		case <-done:
		default:
			t.Errorf("waiter %d of %d is not notified", i, len(h.waiting))
		}
	}
	for _, uid := range n.cfg.Store.UIDs() {
		state, _ := n.cfg.Store.State(uid)
		t.Errorf("%s is left: %+v", uid, state)
	}
	if len(n.workers)+len(n.waiters.channels)+len(h.runtime.running) != 0 {
		t.Errorf("left: %d workers, %d waiters, running %v", len(n.workers), len(n.waiters.channels), h.runtime.running)
	}
}
