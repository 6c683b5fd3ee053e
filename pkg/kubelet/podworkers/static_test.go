package podworkers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// Static pods of one name run one after the other. The next one starts as soon as the one before is finished, without a
// back-off.
func TestStaticPodsWithTheSameNameRunOneAfterTheOther(t *testing.T) {
	bubble(t, func(n *node) {
		first, second, third := staticPod("a", "1"), staticPod("a", "2"), staticPod("a", "3")
		other := staticPod("b", "4")
		for _, pod := range []*v1.Pod{first, second, third, other} {
			n.start(pod)
		}
		n.expectPhase(first, podlifecycle.Syncing)
		n.expectPhase(second, podlifecycle.Known)
		n.expectPhase(other, podlifecycle.Syncing)
		n.script.onTerminate = terminateSlowly
		n.send(kubetypes.SyncPodKill, second) // stopped before it could start
		n.send(kubetypes.SyncPodKill, first, &KillOptions{GracePeriod: new(int64(5))})
		n.advance(3 * time.Second)
		if !n.cfg.Store.IsPodForMirrorPodTerminatingByFullName("a_ns") ||
			n.cfg.Store.IsPodForMirrorPodTerminatingByFullName("b_ns") {
			t.Error("the store does not report the terminating static pod")
		}
		n.expectPhase(second, podlifecycle.Finished)
		n.expectPhase(third, podlifecycle.Known)
		n.advance(3500 * time.Millisecond)
		n.expectPhase(first, podlifecycle.Terminated)
		n.expectPhase(third, podlifecycle.Known)
		n.advance(time.Second)
		n.expectPhase(first, podlifecycle.Finished)
		n.expectPhase(third, podlifecycle.Syncing)
		n.expectCalls("sync a create", "sync b create", "terminate a 5", "clean up a", "sync a create")
	})
}

// A static pod that an earlier run of the agent has started is stopped, although this run has not started it.
func TestUnstartedStaticPodThatRunsIsTerminated(t *testing.T) {
	bubble(t, func(n *node) {
		pod := staticPod("a", "1")
		n.cache.Set(pod.UID, running(pod), nil, time.Now())
		n.createAndDrop(pod)
		n.advance(3 * time.Second)
		n.expectCalls("terminate a 30", "clean up a")
	})
}

// A static pod with a fixed UID is deleted and created again while it terminates: it starts again afterwards.
func TestStaticPodWithAFixedUIDIsRestarted(t *testing.T) {
	bubble(t, func(n *node) {
		pod := staticPod("a", "fixed")
		n.start(pod)
		n.send(kubetypes.SyncPodKill, pod)
		n.create(pod)
		if known := n.SyncKnownPods([]*v1.Pod{pod}); len(known) != 1 {
			t.Fatalf("removed while it terminates: %v", known)
		}
		n.advance(3 * time.Second)
		n.expectPhase(pod, podlifecycle.Finished)
		if known := n.SyncKnownPods([]*v1.Pod{pod}); len(known) != 0 {
			t.Fatalf("not removed: %v", known)
		}
		n.start(pod)
		n.expectCalls("sync a create", "terminate a 30", "clean up a", "sync a create")
	})
}

// After many quick updates and replacements of a static pod, the last one runs (kubernetes issues 109596 and 134908).
func TestLastOfManyReplacedStaticPodsRuns(t *testing.T) {
	bubble(t, func(n *node) {
		runs := map[string]bool{}
		n.script.onSync = func(_ context.Context, request podsync.SyncRequest) (podsync.SyncResult, error) {
			runs[string(request.Pod.UID)] = true
			if len(runs) > 1 {
				t.Errorf("run at the same time: %v", runs)
			}
			return podsync.SyncResult{}, nil
		}
		n.script.onTerminate = func(ctx context.Context, request podsync.TerminateRequest) error {
			defer delete(runs, string(request.Pod.UID))
			return terminateSlowly(ctx, request)
		}
		var pod *v1.Pod
		for i := range 50 {
			if pod != nil {
				n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: new(int64(i % 4))})
			}
			pod = staticPod("a", fmt.Sprint(i))
			n.create(pod)
			n.advance(time.Duration(i%7) * 300 * time.Millisecond)
			n.SyncKnownPods([]*v1.Pod{pod})
		}
		n.advance(30 * time.Second)
		n.SyncKnownPods([]*v1.Pod{pod})
		n.expectPhase(pod, podlifecycle.Syncing)
		if uids := n.cfg.Store.UIDs(); len(uids) != 1 {
			t.Errorf("not removed: %v", uids)
		}
	})
}

// fakeEarlierPods is a runtime with static pods of an earlier run of the agent.
type fakeEarlierPods struct {
	mu   sync.Mutex
	pods map[types.UID]*kubecontainer.Pod
	err  error
}

func (e *fakeEarlierPods) RunningStaticPods(_ context.Context, fullName string) ([]*kubecontainer.Pod, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []*kubecontainer.Pod
	for _, pod := range e.pods {
		if kubecontainer.BuildPodFullName(pod.Name, pod.Namespace) == fullName {
			found = append(found, pod)
		}
	}
	return found, e.err
}

func (e *fakeEarlierPods) remove(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pods, uid)
}

// A static pod that was replaced while the agent was not running is stopped first, without housekeeping; the new one
// starts as soon as it has stopped. With stock both run for some time.
func TestStaticPodReplacedWhileTheAgentWasNotRunning(t *testing.T) {
	earlier := &fakeEarlierPods{pods: map[types.UID]*kubecontainer.Pod{"old": {ID: "old", Name: "a", Namespace: "ns"}}}
	bubble(t, func(n *node) {
		n.script.onTerminateOther = func(ctx context.Context, pod *kubecontainer.Pod) error {
			defer earlier.remove(pod.ID)
			<-time.After(3 * time.Second)
			return ctx.Err()
		}
		successor, other := staticPod("a", "new"), staticPod("b", "other")
		n.start(successor)
		n.start(other)
		n.expectPhase(successor, podlifecycle.Known)
		n.expectPhase(other, podlifecycle.Syncing)
		n.advance(2 * time.Second)
		n.expectPhase(successor, podlifecycle.Known)
		n.advance(1500 * time.Millisecond)
		n.expectPhase(successor, podlifecycle.Syncing)
	}, func(c *Config) { c.EarlierStaticPods = earlier })
}

// No static pod is started while the runtime cannot list the running ones of the same name.
func TestStaticPodIsNotStartedWithoutTheRuntime(t *testing.T) {
	earlier := &fakeEarlierPods{err: errors.New("no runtime")}
	bubble(t, func(n *node) {
		pod := staticPod("a", "new")
		n.start(pod)
		n.expectPhase(pod, podlifecycle.Known)
		earlier.mu.Lock()
		earlier.err = nil
		earlier.mu.Unlock()
		n.send(kubetypes.SyncPodSync, pod) // as the work queue does after the back-off
		n.advance(0)
		n.expectPhase(pod, podlifecycle.Syncing)
	}, func(c *Config) { c.EarlierStaticPods = earlier })
}

// The first attempt to stop the earlier pod fails. Housekeeping waits for all sources, and the waiting pod may be the
// API server, which is one: so the worker of the waiting pod repeats the request.
func TestStopOfEarlierStaticPodIsRetried(t *testing.T) {
	earlier := &fakeEarlierPods{pods: map[types.UID]*kubecontainer.Pod{"old": {ID: "old", Name: "a", Namespace: "ns"}}}
	bubble(t, func(n *node) {
		tries := 0
		n.script.onTerminateOther = func(_ context.Context, pod *kubecontainer.Pod) error {
			if tries++; tries < 3 {
				return errors.New("not now")
			}
			earlier.remove(pod.ID)
			return nil
		}
		successor := staticPod("a", "new")
		n.start(successor)
		for range 4 {
			n.advance(10 * time.Second)
			n.send(kubetypes.SyncPodSync, successor) // as the work queue does after the back-off
		}
		n.advance(time.Second)
		n.expectPhase(successor, podlifecycle.Syncing)
	}, func(c *Config) { c.EarlierStaticPods = earlier })
}

// The manifest of the earlier pod is moved back while the worker of the new pod requests its stop: the earlier pod is
// stopped and starts again, or is not stopped. It must not be stopped as a runtime pod and remain stopped.
func TestEarlierStaticPodIsConfiguredAgainWhileItIsStopped(t *testing.T) {
	earlier := &fakeEarlierPods{pods: map[types.UID]*kubecontainer.Pod{"old": {ID: "old", Name: "a", Namespace: "ns"}}}
	bubble(t, func(n *node) {
		n.script.onTerminateOther = func(_ context.Context, pod *kubecontainer.Pod) error {
			earlier.remove(pod.ID)
			return nil
		}
		n.script.onTerminate = func(_ context.Context, request podsync.TerminateRequest) error {
			earlier.remove(request.Pod.UID)
			return nil
		}
		old, successor := staticPod("a", "old"), staticPod("a", "new")
		moveBack := sync.OnceFunc(func() {
			n.create(old)
			n.send(kubetypes.SyncPodKill, successor)
		})
		logger := funcr.New(func(_, args string) {
			if strings.Contains(args, "Stopping an earlier static pod") {
				moveBack()
			}
		}, funcr.Options{})
		ctx := klog.NewContext(t.Context(), logger)
		n.UpdatePod(ctx, Update{UpdateType: kubetypes.SyncPodCreate, Pod: successor})
		for range 30 {
			n.runSyncLoop(time.Second, old)
			if _, known := n.SyncKnownPods([]*v1.Pod{old})[old.UID]; !known {
				n.create(old)
			}
		}
		n.expectPhase(old, podlifecycle.Syncing)
	}, func(c *Config) { c.EarlierStaticPods = earlier })
}

// No worker is created for a rejected static pod when its source drops it: the worker would have to finish before the
// pod can be created again.
func TestRejectedStaticPodGetsNoWorker(t *testing.T) {
	bubble(t, func(n *node) {
		rejected, runs, ran := staticPod("a", "rejected"), staticPod("b", "runs"), staticPod("c", "ran")
		n.cache.Set(runs.UID, running(runs), nil, time.Now())
		n.SetRunningAtStart([]*kubecontainer.Pod{{ID: ran.UID}}) // the cache has no entry for it yet
		for _, pod := range []*v1.Pod{rejected, runs, ran} {
			n.send(kubetypes.SyncPodKill, pod)
		}
		if n.IsPodTerminationRequested(rejected.UID) {
			t.Error("its termination counts as requested")
		}
		for _, pod := range []*v1.Pod{runs, ran} {
			if !n.IsPodTerminationRequested(pod.UID) {
				t.Errorf("%s is not stopped", pod.UID)
			}
		}
		done := make(chan struct{})
		n.send(kubetypes.SyncPodKill, staticPod("d", "waited for"), &KillOptions{Completed: done})
		<-done // the waiter is notified
	})
}

// A pod that ran when the agent started does not count as running any more after it was stopped: a rejected static pod
// with its UID gets no worker when its source drops it.
func TestRejectedStaticPodGetsNoWorkerAfterAnEarlierPodHasStopped(t *testing.T) {
	bubble(t, func(n *node) {
		pod := staticPod("a", "ran")
		n.SetRunningAtStart([]*kubecontainer.Pod{{ID: pod.UID}})
		n.start(pod)
		n.send(kubetypes.SyncPodKill, pod)
		n.advance(3 * time.Second)
		n.expectPhase(pod, podlifecycle.Finished)
		n.SyncKnownPods(nil)
		n.send(kubetypes.SyncPodKill, pod) // it was created again, was rejected, and is dropped again
		if n.IsPodTerminationRequested(pod.UID) {
			t.Error("its termination counts as requested")
		}
	})
}

// The status cache is filled pod by pod after the start. A pod that ran when the agent started is stopped even if the
// cache has no entry for it yet: one with a terminal phase at the API server, and a static pod that its source drops
// before it is started.
func TestPodThatRanAtStartIsStoppedWithAnEmptyStatusCache(t *testing.T) {
	bubble(t, func(n *node) {
		ended, static := newPod("ended"), staticPod("static", "s")
		n.SetRunningAtStart([]*kubecontainer.Pod{{ID: ended.UID}, {ID: static.UID}})
		n.create(completed(ended))
		n.createAndDrop(static)
		n.advance(3 * time.Second)
		n.script.mu.Lock()
		defer n.script.mu.Unlock()
		slices.Sort(n.script.calls)
		if want := []string{"clean up ended", "clean up static", "terminate ended 30",
			"terminate static 30"}; !slices.Equal(n.script.calls, want) {
			t.Errorf("calls %q, want %q", n.script.calls, want)
		}
	})
}
