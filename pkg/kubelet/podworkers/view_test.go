package podworkers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// view returns what is seen of one pod.
func (n *node) view(pod *v1.Pod) debugv1alpha1.PodWorker {
	n.t.Helper()
	for _, v := range n.Views().Workers {
		if v.UID == pod.UID {
			return v
		}
	}
	n.t.Fatalf("%s is not shown", pod.Name)
	return debugv1alpha1.PodWorker{}
}

func TestViewsOfAllPhases(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		release := make(chan struct{})
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { <-release; return nil }
		n.script.onCleanUp = func(context.Context, *v1.Pod, *kubecontainer.PodStatus) error { return nil }
		begin := time.Now()
		n.start(pod)
		v := n.view(pod)
		if v.Namespace != "ns" || v.Name != "a" || v.Phase != "Syncing" || v.Operation != "none" || v.WaitsFor != "" ||
			v.Termination != nil || v.LastError != nil {
			t.Errorf("a pod that is well: %+v", v)
		}
		if !v.Since.Seen.Equal(begin) || v.Since.Started.IsZero() || !v.Since.Requested.IsZero() {
			t.Errorf("times %+v", v.Since)
		}
		done := make(chan struct{})
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{
			Evict: true, GracePeriod: new(int64(5)), Completed: done,
			Disruption: &podkill.Disruption{Detail: func() string { return "The pod was fenced. " }},
		})
		n.advance(3 * time.Second)
		asked := n.state(pod).Times.Requested
		want := debugv1alpha1.Termination{
			Cause: "eviction", GraceSeconds: 5, Deadline: asked.Add(5 * time.Second), Begun: true, Waiters: 1,
			Detail: "The pod was fenced.",
		}
		if v = n.view(pod); v.Termination == nil || *v.Termination != want || v.Operation != "terminate" ||
			v.Since.Operation.IsZero() {
			t.Errorf("a pod that is being stopped: %+v, %+v", v, v.Termination)
		}
		n.advance(2*time.Second + stuckMargin)
		if v = n.view(pod); v.Termination.Stuck {
			t.Error("stuck too early")
		}
		n.advance(time.Second)
		if v = n.view(pod); !v.Termination.Stuck {
			t.Error("not stuck")
		}
		close(release)
		n.advance(2 * time.Second)
		if v = n.view(pod); v.Phase != "Finished" || v.Termination.Stuck || v.Termination.Waiters != 0 ||
			v.Since.Finished.IsZero() {
			t.Errorf("a pod that is done: %+v, %+v", v, v.Termination)
		}
	})
}

// Whatever a worker waits for, it says so.
func TestViewsShowWaitReasons(t *testing.T) {
	tell := podsync.ReportProgress
	for _, tc := range []struct {
		name, operation, want string
		arrange               func(n *node, pod *v1.Pod)
	}{
		{"PLEG is stuck", "sync", "status from the runtime",
			func(n *node, pod *v1.Pod) { n.breakPLEG(); n.start(pod); n.send(kubetypes.SyncPodUpdate, pod) }},
		{"volumes", "sync", "volumes to mount", func(n *node, pod *v1.Pod) {
			n.script.onSync = func(ctx context.Context, _ podsync.SyncRequest) (podsync.SyncResult, error) {
				tell(ctx, "await volumes")
				return podsync.SyncResult{}, untilCancelled(ctx)
			}
			n.start(pod)
		}},
		{"a step of which nothing is said", "sync", "make data directories", func(n *node, pod *v1.Pod) {
			n.script.onSync = func(ctx context.Context, _ podsync.SyncRequest) (podsync.SyncResult, error) {
				tell(ctx, "make data directories")
				return podsync.SyncResult{}, untilCancelled(ctx)
			}
			n.start(pod)
		}},
		{"containers", "terminate", "containers to stop", func(n *node, pod *v1.Pod) {
			n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error {
				tell(ctx, "kill containers")
				return untilCancelled(ctx)
			}
			n.start(pod)
			n.send(kubetypes.SyncPodKill, pod)
		}},
		{"a pod of the runtime", "terminate runtime pod", "containers to stop", func(n *node, pod *v1.Pod) {
			n.script.onTerminateOther = func(ctx context.Context, _ *kubecontainer.Pod) error { return untilCancelled(ctx) }
			n.UpdatePod(context.Background(), Update{UpdateType: kubetypes.SyncPodKill,
				RunningPod: &kubecontainer.Pod{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}})
		}},
		{"volumes at the end", "clean up", "volumes to unmount", func(n *node, pod *v1.Pod) {
			n.script.onCleanUp = func(ctx context.Context, _ *v1.Pod, _ *kubecontainer.PodStatus) error {
				tell(ctx, "await unmount")
				return untilCancelled(ctx)
			}
			n.start(pod)
			n.send(kubetypes.SyncPodKill, pod)
		}},
		{"the next try", "none", "the next try", func(n *node, pod *v1.Pod) {
			n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { return errors.New("no") }
			n.start(pod)
			n.send(kubetypes.SyncPodKill, pod)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(n *node) {
				pod := newPod("a")
				tc.arrange(n, pod)
				n.advance(3 * time.Second)
				if v := n.view(pod); v.Operation != tc.operation || v.WaitsFor != tc.want {
					t.Errorf("%q waits for %q, want %q waiting for %q", v.Operation, v.WaitsFor, tc.operation, tc.want)
				}
			})
		})
	}
}

// A sync that does not heed its end holds the termination up.
func TestViewOfASyncThatDoesNotEnd(t *testing.T) {
	bubble(t, func(n *node) {
		release := make(chan struct{})
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			<-release
			return podsync.SyncResult{}, nil
		}
		pod := newPod("a")
		n.start(pod)
		n.send(kubetypes.SyncPodKill, pod)
		n.advance(time.Minute)
		if v := n.view(pod); v.Operation != "sync" || v.WaitsFor != "the running sync to end" || !v.Termination.Stuck ||
			v.Termination.Begun {
			t.Errorf("%+v, %+v", v, v.Termination)
		}
		close(release)
		synctest.Wait()
	})
}

func TestViewOfAStaticPodThatWaits(t *testing.T) {
	bubble(t, func(n *node) {
		first, second := staticPod("a", "1"), staticPod("a", "2")
		n.start(first)
		n.start(second)
		if v := n.view(second); v.Phase != "Known" || !v.Static || v.WaitsFor != "another pod of the same full name" {
			t.Errorf("%+v", v)
		}
		if v := n.view(first); v.Phase != "Syncing" || v.WaitsFor != "" {
			t.Errorf("%+v", v)
		}
	})
}

func TestViewsAreOrderedAndBounded(t *testing.T) {
	bubble(t, func(n *node) {
		for i := range maxViews + 3 {
			pod := newPod(fmt.Sprintf("p%d", i%7))
			pod.Namespace, pod.UID = fmt.Sprintf("ns%d", i%3), types.UID(fmt.Sprint(i))
			n.create(pod)
		}
		listing := n.Views()
		if len(listing.Workers) != maxViews || listing.Omitted != 3 {
			t.Errorf("%d shown, %d omitted", len(listing.Workers), listing.Omitted)
		}
		if !slices.IsSortedFunc(listing.Workers, func(a, b debugv1alpha1.PodWorker) int {
			return strings.Compare(a.Namespace+"\x00"+a.Name+"\x00"+string(a.UID),
				b.Namespace+"\x00"+b.Name+"\x00"+string(b.UID))
		}) {
			t.Error("not in order")
		}
	})
}

// The last error is shown with its time and how often it came.
func TestViewOfAnError(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		fail := true
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			if fail {
				return podsync.SyncResult{}, errors.New("run [/bin/launch]:\nno such file")
			}
			return podsync.SyncResult{}, nil
		}
		n.start(pod)
		n.send(kubetypes.SyncPodSync, pod)
		n.advance(2 * time.Second)
		v := n.view(pod)
		if v.LastError == nil || v.LastError.Failures != 2 || v.LastError.Message != "run [/bin/launch]: no such file" ||
			v.LastError.Time.IsZero() {
			t.Fatalf("%+v", v.LastError)
		}
		fail = false
		n.send(kubetypes.SyncPodSync, pod)
		n.advance(2 * time.Second)
		if v = n.view(pod); v.LastError == nil || v.LastError.Failures != 0 || v.Phase != podlifecycle.Syncing.String() {
			t.Errorf("after a success: %+v", v.LastError)
		}
	})
}

// Looking is safe at any time, and sees no pod in two places or with what contradicts itself.
func TestViewsDuringUpdates(t *testing.T) {
	bubble(t, func(n *node) {
		n.script.onSync = func(ctx context.Context, request podsync.SyncRequest) (podsync.SyncResult, error) {
			podsync.ReportProgress(ctx, "await volumes")
			return podsync.SyncResult{}, errors.New("no volumes for " + request.Pod.Name)
		}
		var workers sync.WaitGroup
		for i := range 20 {
			workers.Go(func() {
				pod := newPod(fmt.Sprint(i))
				for range 5 {
					n.create(pod)
					n.send(kubetypes.SyncPodUpdate, pod)
					n.send(kubetypes.SyncPodKill, pod, &KillOptions{Evict: i%2 == 0})
				}
			})
		}
		looks := 0
		for range 200 {
			seen := map[types.UID]bool{}
			for _, v := range n.Views().Workers {
				looks++
				terminating := v.Phase == "Terminating" || v.Phase == "Terminated" || v.Phase == "Finished"
				if seen[v.UID] || terminating != (v.Termination != nil) || v.Since.Seen.IsZero() {
					t.Errorf("%+v", v)
				}
				seen[v.UID] = true
			}
			n.count()
			synctest.Wait()
		}
		workers.Wait()
		if looks == 0 {
			t.Error("no worker was shown")
		}
	})
}

func TestViewOfAnOverduePod(t *testing.T) {
	since := time.Now()
	overdue := map[types.UID]escalation.Overdue{}
	bubble(t, func(n *node) {
		pod, other := newPod("a"), newPod("b")
		overdue[pod.UID] = escalation.Overdue{Since: since, Step: escalation.KillCgroup, Seen: since.Add(time.Minute),
			Facts: escalation.Facts{Running: []string{"main"}}}
		overdue[other.UID] = overdue[pod.UID]
		n.start(pod)
		n.start(other)
		n.send(kubetypes.SyncPodKill, pod)
		v := n.view(pod)
		want := debugv1alpha1.Overdue{Since: since, Tried: "KillCgroup", Seen: since.Add(time.Minute),
			Left: "running: main; no process is left in the pod's cgroup"}
		if v.Termination == nil || v.Termination.Overdue == nil || *v.Termination.Overdue != want {
			t.Errorf("view of an overdue pod: %+v", v.Termination)
		}
		if v = n.view(other); v.Termination != nil {
			t.Errorf("a pod that is not being stopped: %+v", v.Termination)
		}
	}, func(c *Config) { c.Overdue = func() map[types.UID]escalation.Overdue { return overdue } })
}
