//go:build !race

package podworkers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// stockSyncer has the methods of the stock workers' unexported interface.
type stockSyncer interface {
	SyncPod(ctx context.Context, updateType kubetypes.SyncPodType, pod, mirrorPod *v1.Pod,
		status *kubecontainer.PodStatus) (bool, func(), error)
	SyncTerminatedPod(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus) error
	SyncTerminatingPod(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus, grace *int64,
		setStatus func(*v1.PodStatus)) error
	SyncTerminatingRuntimePod(ctx context.Context, pod *kubecontainer.Pod) error
}

//go:linkname newStockWorkers k8s.io/kubernetes/pkg/kubelet.newPodWorkers
func newStockWorkers(syncer stockSyncer, recorder record.EventRecorder, work queue.WorkQueue, resync,
	backoff time.Duration,
	cache kubecontainer.ROCache, allocation allocation.Manager) kubelet.PodWorkers

// comparison records the operations of both pod workers.
type comparison struct {
	mu    sync.Mutex
	cache kubecontainer.Cache
	// ended are the pods whose containers have ended for good.
	ended map[types.UID]bool
	ours  map[types.UID][]string
	stock map[types.UID][]string
}

// record records a call, unless it equals the last one: how often a pod is synced depends on timing.
func (w *comparison) record(log map[types.UID][]string, uid types.UID, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	call := fmt.Sprintf(format, args...)
	if calls := log[uid]; len(calls) == 0 || calls[len(calls)-1] != call {
		log[uid] = append(calls, call)
	}
}

// terminationTime is long enough for later kills to arrive during a termination.
const terminationTime = 250 * time.Millisecond

func (w *comparison) hasEnded(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended[uid]
}

// ourSide is the Syncer of our workers.
type ourSide struct{ *comparison }

func (s ourSide) Sync(_ context.Context, request podsync.SyncRequest) (podsync.SyncResult, error) {
	s.record(s.ours, request.Pod.UID, "sync")
	return podsync.SyncResult{Terminal: s.hasEnded(request.Pod.UID)}, nil
}

func (s ourSide) Terminate(_ context.Context, request podsync.TerminateRequest) error {
	s.record(s.ours, request.Pod.UID, "terminate %d", ownGrace(request.Pod, request.GracePeriod))
	time.Sleep(terminationTime)
	return nil
}

func (s ourSide) TerminateRuntimePod(_ context.Context, pod *kubecontainer.Pod) error {
	s.record(s.ours, pod.ID, "terminate runtime pod")
	return nil
}

func (s ourSide) CleanUp(_ context.Context, pod *v1.Pod, _ *kubecontainer.PodStatus) error {
	s.record(s.ours, pod.UID, "clean up")
	return nil
}

// stockSide is the same for the stock workers.
type stockSide struct{ *comparison }

func (s stockSide) SyncPod(_ context.Context, _ kubetypes.SyncPodType, pod, _ *v1.Pod,
	_ *kubecontainer.PodStatus) (bool, func(), error) {
	s.record(s.stock, pod.UID, "sync")
	return s.hasEnded(pod.UID), nil, nil
}

func (s stockSide) SyncTerminatingPod(_ context.Context, pod *v1.Pod, _ *kubecontainer.PodStatus, grace *int64,
	_ func(*v1.PodStatus)) error {
	s.record(s.stock, pod.UID, "terminate %d", ownGrace(pod, grace))
	time.Sleep(terminationTime)
	return nil
}

func (s stockSide) SyncTerminatingRuntimePod(_ context.Context, pod *kubecontainer.Pod) error {
	s.record(s.stock, pod.ID, "terminate runtime pod")
	return nil
}

func (s stockSide) SyncTerminatedPod(_ context.Context, pod *v1.Pod, _ *kubecontainer.PodStatus) error {
	s.record(s.stock, pod.UID, "clean up")
	return nil
}

// ownGrace returns the grace period that a runtime would use. Where stock passes nil, ours may pass the pod's own.
func ownGrace(pod *v1.Pod, override *int64) int64 {
	switch {
	case override != nil:
		return *override
	case pod.DeletionGracePeriodSeconds != nil:
		return *pod.DeletionGracePeriodSeconds
	}
	return *pod.Spec.TerminationGracePeriodSeconds
}

// pair sends the same updates to both, as sync loop and housekeeping do.
type pair struct {
	*comparison
	node         *node
	stockWorkers kubelet.PodWorkers
	queue        queue.WorkQueue
	desired      map[types.UID]*v1.Pod
}

func newPair(n *node) *pair {
	p := &pair{
		comparison: &comparison{cache: n.cache, ended: map[types.UID]bool{}, ours: map[types.UID][]string{},
			stock: map[types.UID][]string{}},
		node:    n,
		queue:   queue.NewBasicWorkQueue(clock.RealClock{}),
		desired: map[types.UID]*v1.Pod{},
	}
	n.cfg.Syncer, n.cfg.Runtime = ourSide{p.comparison}, ourSide{p.comparison}
	manager := allocation.NewInMemoryManager(nil, nil, nil, nil, nil, nil)
	p.stockWorkers = newStockWorkers(stockSide{p.comparison}, &record.FakeRecorder{}, p.queue, resync, backoff, n.cache,
		manager)
	return p
}

func (p *pair) update(kind kubetypes.SyncPodType, pod *v1.Pod, kill *KillOptions) {
	p.node.UpdatePod(context.Background(), Update{UpdateType: kind, Pod: pod, Kill: kill})
	options := kubelet.UpdatePodOptions{UpdateType: kind, Pod: pod}
	if kill != nil {
		options.KillPodOptions = &kubelet.KillPodOptions{Evict: kill.Evict,
			PodTerminationGracePeriodSecondsOverride: kill.GracePeriod}
	}
	p.stockWorkers.UpdatePod(context.Background(), options)
}

func (p *pair) runtimePod(uid types.UID) {
	pod := &kubecontainer.Pod{ID: uid, Name: "runtime-" + string(uid), Namespace: "ns"}
	p.node.UpdatePod(context.Background(), Update{UpdateType: kubetypes.SyncPodKill, RunningPod: pod,
		Kill: &KillOptions{GracePeriod: new(int64(1))}})
	p.stockWorkers.UpdatePod(context.Background(),
		kubelet.UpdatePodOptions{UpdateType: kubetypes.SyncPodKill, RunningPod: pod,
			KillPodOptions: &kubelet.KillPodOptions{PodTerminationGracePeriodSecondsOverride: new(int64(1))}})
}

// resend sends pods that are due again, as the sync loop does.
func (p *pair) resend() {
	for _, uid := range p.node.queue.GetWork() {
		if pod, ok := p.desired[uid]; ok {
			p.node.UpdatePod(context.Background(), Update{UpdateType: kubetypes.SyncPodSync, Pod: pod})
			continue
		}
		p.node.Retry(uid)
	}
	for _, uid := range p.queue.GetWork() {
		if pod, ok := p.desired[uid]; ok {
			p.stockWorkers.UpdatePod(context.Background(), kubelet.UpdatePodOptions{UpdateType: kubetypes.SyncPodSync, Pod: pod})
		}
	}
}

// housekeeping runs one round of housekeeping, which starts removed pods again.
func (p *pair) housekeeping() {
	uids := slices.Sorted(maps.Keys(p.desired))
	var pods []*v1.Pod
	for _, uid := range uids {
		pods = append(pods, p.desired[uid])
	}
	ours := p.node.SyncKnownPods(pods)
	stock := p.stockWorkers.SyncKnownPods(klog.Background(), pods)
	for _, pod := range pods {
		if _, known := ours[pod.UID]; !known {
			p.node.UpdatePod(context.Background(), Update{UpdateType: kubetypes.SyncPodCreate, Pod: pod})
		}
		if _, known := stock[pod.UID]; !known {
			p.stockWorkers.UpdatePod(context.Background(),
				kubelet.UpdatePodOptions{UpdateType: kubetypes.SyncPodCreate, Pod: pod})
		}
	}
}

// settle waits until both are idle.
func (p *pair) settle() {
	for range 25 {
		p.node.advance(time.Second)
		p.resend()
	}
	p.node.advance(3 * time.Second)
}

// compare compares calls and queries of both.
func (p *pair) compare(t *rapid.T, uids []types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	store := p.node.cfg.Store
	for _, uid := range uids {
		if !slices.Equal(p.ours[uid], p.stock[uid]) {
			t.Fatalf("%s: our calls %q, stock's %q", uid, p.ours[uid], p.stock[uid])
		}
		state, _ := store.State(uid)
		for _, answer := range []struct {
			name        string
			ours, stock bool
		}{
			{"CouldHaveRunningContainers", store.CouldHaveRunningContainers(uid),
				p.stockWorkers.CouldHaveRunningContainers(uid)},
			{"ShouldPodBeFinished", store.ShouldPodBeFinished(uid), p.stockWorkers.ShouldPodBeFinished(uid)},
			{"IsPodTerminationRequested", store.IsPodTerminationRequested(uid), p.stockWorkers.IsPodTerminationRequested(uid)},
			{"ShouldPodRuntimeBeRemoved", store.ShouldPodRuntimeBeRemoved(uid), p.stockWorkers.ShouldPodRuntimeBeRemoved(uid)},
			// Stock returns true for a pod that is being evicted (D46).
			{"ShouldPodContentBeRemoved", store.ShouldPodContentBeRemoved(uid),
				p.stockWorkers.ShouldPodContentBeRemoved(uid) && state.Phase != podlifecycle.Terminating},
			{"IsPodKnownTerminated", store.IsPodKnownTerminated(uid), p.stockWorkers.IsPodKnownTerminated(uid)},
			// Stock returns false for a finished pod that never started.
			{"ShouldPodContainersBeTerminating", store.ShouldPodContainersBeTerminating(uid),
				p.stockWorkers.ShouldPodContainersBeTerminating(uid) || state.Phase == podlifecycle.Finished},
		} {
			if answer.ours != answer.stock {
				t.Fatalf("%s of %s: ours %t, stock's %t; %+v; calls %q", answer.name, uid, answer.ours, answer.stock, state,
					p.ours[uid])
			}
		}
	}
}

// With the same updates our pod workers call the same operations in the same order as stock's, and give the same
// answers to queries when they are idle.
func TestWorkersEqualStock(t *testing.T) {
	uids := []types.UID{"f", "p1", "p2", "p3", "s1", "s2"}
	pods := map[types.UID]*v1.Pod{"f": staticPod("fixed", "f"), "s1": staticPod("a", "s1"), "s2": staticPod("a", "s2")}
	for _, uid := range uids[1:4] {
		pods[uid] = newPod(string(uid))
		pods[uid].UID = uid
	}
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) {
			n := newNode(nil)
			p := newPair(n)
			defer p.drain()
			p.run(t, uids, pods)
			p.settle()
			p.housekeeping()
			p.settle()
			p.compare(t, uids)
		})
	})
}

// drain removes all pods from the configuration, and checks that ours are removed then.
func (p *pair) drain() {
	p.desired = map[types.UID]*v1.Pod{}
	for range 4 {
		p.housekeeping()
		p.settle()
	}
	left := p.node.cfg.Store.UIDs()
	p.node.close()
	if len(left) != 0 {
		panic(fmt.Sprintf("still known: %v", left))
	}
}

// hasKnownDifference is true where a kill has different effects: ours shortens the grace period of a termination in
// progress, and removes a static pod that is stopped before it could start from the queue for its name.
func (p *pair) hasKnownDifference(uid types.UID) bool {
	state, _ := p.node.cfg.Store.State(uid)
	return state.Operation == podlifecycle.OpTerminate || state.Static && state.Phase == podlifecycle.Known
}

// run sends random updates.
func (p *pair) run(t *rapid.T, uids []types.UID, pods map[types.UID]*v1.Pod) {
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		uid := rapid.SampledFrom(uids).Draw(t, "uid")
		pod, wanted := p.desired[uid]
		switch rapid.SampledFrom([]string{"add", "add", "delete", "remove", "kill", "end", "resync", "housekeeping",
			"runtime"}).Draw(t, "what") {
		case "add":
			p.desired[uid] = pods[uid]
			p.update(kubetypes.SyncPodCreate, pods[uid], nil)
		case "delete":
			if wanted && !kubetypes.IsStaticPod(pod) && !p.hasKnownDifference(uid) {
				p.desired[uid] = deleted(pod, rapid.Int64Range(1, 60).Draw(t, "grace"))
				p.update(kubetypes.SyncPodUpdate, p.desired[uid], nil)
			}
		case "remove":
			if wanted && !p.hasKnownDifference(uid) {
				delete(p.desired, uid)
				p.update(kubetypes.SyncPodKill, pod, nil)
			}
		case "kill":
			if wanted && !p.hasKnownDifference(uid) {
				p.update(kubetypes.SyncPodKill, pod, &KillOptions{Evict: rapid.Bool().Draw(t, "evict"),
					GracePeriod: new(rapid.Int64Range(1, 60).Draw(t, "grace"))})
			}
		case "end":
			p.mu.Lock()
			p.ended[uid] = true
			p.mu.Unlock()
			fallthrough
		case "resync":
			if wanted {
				p.update(kubetypes.SyncPodSync, pod, nil)
			}
		case "housekeeping":
			p.housekeeping()
		case "runtime":
			if _, known := p.node.cfg.Store.State(uid); !known && !wanted {
				p.runtimePod(uid)
			}
		}
		if uid == "s1" || uid == "s2" || p.hasEnded(uid) {
			// Ours start the next static pod of a name at once, stock's after the back-off. Ours terminate a pod that has ended
			// at once, stock's after the next status.
			p.settle()
		}
		p.node.advance(rapid.SampledFrom([]time.Duration{0, 300 * time.Millisecond, 4700 * time.Millisecond}).Draw(t,
			"pause"))
		p.resend()
	}
}
