//go:build !race

package podworkers

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// The tests of this file are named after the rows of docs/defects.md. Each runs its scenario with stock's pod workers
// and with ours, and also fails when stock does not show the defect any more: then the row has to be removed.

//go:linkname stockKillPodNow k8s.io/kubernetes/pkg/kubelet.killPodNow
func stockKillPodNow(ctx context.Context, workers kubelet.PodWorkers,
	recorder record.EventRecorder) eviction.KillPodFunc

// stockNode is stock's pod workers on a node, with operations that end at once unless they are held.
type stockNode struct {
	kubelet.PodWorkers
	node *node

	mu sync.Mutex
	// syncs and terminations are held until their channel is closed, if they have one.
	syncs, terminations chan struct{}
	terminated          []int64
	// down makes terminations fail.
	down bool
	work queue.WorkQueue
}

func (s *stockNode) SyncPod(context.Context, kubetypes.SyncPodType, *v1.Pod, *v1.Pod, *kubecontainer.PodStatus) (bool,
	func(), error) {
	if s.syncs != nil {
		<-s.syncs
	}
	return false, nil, nil
}

func (s *stockNode) SyncTerminatingPod(_ context.Context, pod *v1.Pod, _ *kubecontainer.PodStatus, grace *int64,
	_ func(*v1.PodStatus)) error {
	s.mu.Lock()
	s.terminated = append(s.terminated, ownGrace(pod, grace))
	down := s.down
	s.mu.Unlock()
	if down {
		return errors.New("no runtime")
	}
	if s.terminations != nil {
		<-s.terminations
	}
	return nil
}

func (s *stockNode) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *stockNode) SyncTerminatingRuntimePod(context.Context, *kubecontainer.Pod) error { return nil }

func (s *stockNode) SyncTerminatedPod(context.Context, *v1.Pod, *kubecontainer.PodStatus) error {
	return nil
}

// besideStock runs a test with both pod workers in one bubble: n has ours.
func besideStock(t *testing.T, test func(n *node, s *stockNode)) {
	t.Helper()
	bubble(t, func(n *node) {
		s := &stockNode{node: n, work: queue.NewBasicWorkQueue(clock.RealClock{})}
		manager := allocation.NewInMemoryManager(nil, nil, nil, nil, nil, nil)
		s.PodWorkers = newStockWorkers(s, &record.FakeRecorder{}, s.work, resync, backoff, n.cache, manager)
		test(n, s)
		n.breakPLEG()
		n.startPLEG()
		for range 10 {
			s.SyncKnownPods(klog.Background(), nil)
			n.advance(time.Minute)
		}
	})
}

func (s *stockNode) send(kind kubetypes.SyncPodType, pod *v1.Pod, kill ...*kubelet.KillPodOptions) {
	options := kubelet.UpdatePodOptions{UpdateType: kind, Pod: pod, StartTime: time.Now()}
	if len(kill) > 0 {
		options.KillPodOptions = kill[0]
	}
	s.UpdatePod(context.Background(), options)
}

func (s *stockNode) start(pod *v1.Pod) {
	s.send(kubetypes.SyncPodCreate, pod)
	synctest.Wait()
}

// syncLoop does once what stock's sync loop does with pods that are due (getPodsToSync). The sources have the given
// pods.
func (s *stockNode) syncLoop(pods ...*v1.Pod) {
	due := s.work.GetWork()
	for _, pod := range pods {
		if slices.Contains(due, pod.UID) {
			s.send(kubetypes.SyncPodSync, pod)
		}
	}
	synctest.Wait()
}

// kill calls the function that stock's eviction manager calls, and returns how long that takes.
func (s *stockNode) kill(pod *v1.Pod, grace *int64) (time.Duration, error) {
	begin := time.Now()
	err := stockKillPodNow(context.Background(), s, &record.FakeRecorder{})(pod, true, grace, func(*v1.PodStatus) {})
	return time.Since(begin), err
}

// status is stock's podSyncStatus of a pod.
func (s *stockNode) status(pod *v1.Pod) reflect.Value {
	all := reflect.ValueOf(s.PodWorkers).Elem().FieldByName("podSyncStatuses")
	return all.MapIndex(reflect.ValueOf(pod.UID)).Elem()
}

const noDefect = "stock does not show the defect any more"

func TestD22BesideStock(t *testing.T) {
	for name, prepare := range map[string]func(n *node, s *stockNode) *v1.Pod{
		"finished": func(n *node, s *stockNode) *v1.Pod {
			pod := newPod("a")
			n.start(pod)
			s.start(pod)
			n.send(kubetypes.SyncPodKill, pod)
			s.send(kubetypes.SyncPodKill, pod)
			n.advance(5 * time.Second)
			return pod
		},
		"static, waiting to start": func(n *node, s *stockNode) *v1.Pod {
			first, second := staticPod("a", "1"), staticPod("a", "2")
			for _, pod := range []*v1.Pod{first, second} {
				n.start(pod)
				s.start(pod)
			}
			return second
		},
	} {
		t.Run(name, func(t *testing.T) {
			besideStock(t, func(n *node, s *stockNode) {
				pod := prepare(n, s)
				if took, err := s.kill(pod, new(int64(1))); err == nil || took != 10*time.Second {
					n.t.Errorf("%s: %v after %v", noDefect, err, took)
				}
				begin := time.Now()
				if err := n.kill(pod, true, new(int64(1))); err != nil || time.Since(begin) != 0 {
					n.t.Errorf("ours: %v after %v", err, time.Since(begin))
				}
			})
		})
	}
}

func TestD26BesideStock(t *testing.T) {
	besideStock(t, func(n *node, s *stockNode) {
		pod := newPod("a")
		n.start(pod)
		s.start(pod)
		n.advance(2 * time.Second)
		release := make(chan struct{})
		s.terminations = release
		n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 30))
		s.send(kubetypes.SyncPodUpdate, deleted(pod, 30))
		n.advance(2 * time.Second)
		for range 1000 {
			if _, err := s.kill(pod, new(int64(0))); err == nil {
				n.t.Fatal("stock's kill has ended")
			}
			if err := n.kill(pod, true, new(int64(0))); err == nil {
				n.t.Fatal("our kill has ended")
			}
		}
		kept := s.status(pod)
		if waiters, functions := kept.FieldByName("notifyPostTerminating").Len(),
			kept.FieldByName("statusPostTerminating").Len(); waiters < 1000 || functions < 1000 {
			n.t.Errorf("%s: %d waiters, %d functions", noDefect, waiters, functions)
		}
		synctest.Wait()
		if state := n.state(pod); len(state.Waiters) != 0 || len(n.waiters.channels) != 0 || state.Evicted() ||
			!state.Termination.Hastened {
			n.t.Errorf("ours: %+v, %d channels", state, len(n.waiters.channels))
		}
		close(release)
	})
}

// TestD27BesideStock: a second request arrives before the worker has processed the first.
func TestD27BesideStock(t *testing.T) {
	besideStock(t, func(n *node, s *stockNode) {
		pod := newPod("a")
		s.syncs = make(chan struct{})
		release := make(chan struct{})
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			<-release
			return podsync.SyncResult{}, nil
		}
		n.start(pod)
		s.start(pod)
		s.send(kubetypes.SyncPodKill, pod, &kubelet.KillPodOptions{Evict: true,
			PodTerminationGracePeriodSecondsOverride: new(int64(4))})
		s.send(kubetypes.SyncPodKill, pod, &kubelet.KillPodOptions{})
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{Evict: true, GracePeriod: new(int64(4))})
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{})
		synctest.Wait()
		kept := s.status(pod)
		request := kept.FieldByName("pendingUpdate").Elem().FieldByName("KillPodOptions").Elem()
		if request.FieldByName("Evict").Bool() {
			n.t.Error(noDefect + ": the stored request still evicts")
		}
		if !kept.FieldByName("evicted").Bool() {
			n.t.Error("stock does not record the eviction")
		}
		if state := n.state(pod); !state.Evicted() || state.Termination.Grace != 4 {
			n.t.Errorf("ours: %+v", state.Termination)
		}
		close(s.syncs)
		close(release)
		n.advance(5 * time.Second)
	})
}

// TestD46BesideStock: the sync loop removes the dead containers of a pod whose content may be removed, at the event of
// the first one that stops.
func TestD46BesideStock(t *testing.T) {
	besideStock(t, func(n *node, s *stockNode) {
		pod := newPod("a")
		s.terminations = make(chan struct{})
		s.start(pod)
		s.send(kubetypes.SyncPodKill, pod, &kubelet.KillPodOptions{Evict: true,
			PodTerminationGracePeriodSecondsOverride: new(int64(5))})
		synctest.Wait()
		if !s.ShouldPodContentBeRemoved(pod.UID) {
			n.t.Error(noDefect)
		}
		close(s.terminations)
	})
}

// TestD28BesideStock: the PLEG has not listed the pods for an hour.
func TestD28BesideStock(t *testing.T) {
	besideStock(t, func(n *node, s *stockNode) {
		pod := newPod("a")
		n.start(pod)
		s.start(pod)
		n.breakPLEG()
		begin := time.Now()
		if err := n.kill(pod, true, new(int64(1))); err != nil || time.Since(begin) > defaultStatusWait {
			n.t.Errorf("ours: %v after %v", err, time.Since(begin))
		}
		if took, err := s.kill(pod, new(int64(1))); err == nil {
			n.t.Errorf("%s: killed after %v", noDefect, took)
		}
		n.advance(time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.terminated) != 0 {
			n.t.Errorf("%s: termination has begun", noDefect)
		}
	})
}

// TestD51BesideStock: a static pod is moved away while the runtime is down, and back after its retry was due. From then
// on all sources are ready.
func TestD51BesideStock(t *testing.T) {
	besideStock(t, func(n *node, s *stockNode) {
		pod := staticPod("a", "fixed")
		n.start(pod)
		s.start(pod)
		n.advance(2 * time.Second)
		s.setDown(true)
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { return errors.New("no runtime") }
		n.send(kubetypes.SyncPodKill, pod)
		s.send(kubetypes.SyncPodKill, pod)
		n.advance(2 * backoff)
		n.syncLoop()
		s.syncLoop()
		n.script.onTerminate = nil
		s.setDown(false)
		n.send(kubetypes.SyncPodCreate, pod)
		s.send(kubetypes.SyncPodCreate, pod)
		for range 3600 {
			n.advance(time.Second)
			n.syncLoop(pod)
			s.syncLoop(pod)
			if len(n.SyncKnownPods([]*v1.Pod{pod})) == 0 {
				n.create(pod)
			}
			if len(s.SyncKnownPods(klog.Background(), []*v1.Pod{pod})) == 0 {
				s.start(pod)
			}
		}
		if phase := n.phase(pod); phase != podlifecycle.Syncing {
			n.t.Errorf("ours: phase %v", phase)
		}
		if len(s.terminated) != 1 || s.ShouldPodBeFinished(pod.UID) {
			n.t.Errorf("%s: it has tried %d times to stop the pod", noDefect, len(s.terminated))
		}
	})
}

// TestRanAtStartBesideStock: a running pod has a terminal phase at the API server, for example because it was rejected
// after a restart. Stock does not stop it while the status cache has no entry for it.
func TestRanAtStartBesideStock(t *testing.T) {
	besideStock(t, func(n *node, s *stockNode) {
		pod := completed(newPod("a"))
		n.SetRunningAtStart([]*kubecontainer.Pod{{ID: pod.UID}})
		n.start(pod)
		s.start(pod)
		// The cache gets its entry just afterwards.
		n.cache.Set(pod.UID, running(pod), nil, time.Now())
		n.advance(time.Minute)
		n.expectCalls("terminate a 30", "clean up a")
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.terminated) > 0 {
			t.Error(noDefect)
		}
	})
}
