package housekeeping

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/test/fakeworkers"
	"github.com/plimsoll-project/plimsoll/test/fixture"
)

// liveNode is a node with real pod workers, whose pods start in two steps: the directory is made, then a file in it is
// written. It must be used in a synctest bubble.
type liveNode struct {
	*node
	t       *testing.T
	store   *podlifecycle.Store
	workers *podworkers.Workers
	cleaner *Cleaner
	// started receives a token when a pod's directory is made; written receives the result of writing the file after a
	// token is sent to goOn.
	started, goOn chan struct{}
	written       chan error
	// stopped receives the UID of each pod that is stopped.
	stopped chan types.UID
}

func newLiveNode(t *testing.T, change func(*liveNode)) *liveNode {
	n := &liveNode{
		node: newNode(t), t: t, store: podlifecycle.NewStore(),
		started: make(chan struct{}, 10), goOn: make(chan struct{}), written: make(chan error, 10),
		stopped: make(chan types.UID, 10),
	}
	change(n)
	cache := kubecontainer.NewCache()
	cache.UpdateTime(time.Now().Add(time.Hour))
	n.workers = podworkers.New(podworkers.Config{
		Store: n.store, Syncer: n, Runtime: n, PodCache: cache, Queue: queue.NewBasicWorkQueue(clock.RealClock{}),
		Recorder: record.NewFakeRecorder(100), Hastener: fakeworkers.Hastener{}, Allocation: fakeworkers.Allocation{},
		Terminations: fakeworkers.Terminations{}, Overdue: fakeworkers.NoneOverdue,
		EarlierStaticPods: fakeworkers.EarlierStaticPods{},
		ResyncInterval:    time.Minute, BackoffPeriod: 10 * time.Second,
	})
	c := n.config()
	c.Workers = n.workers
	n.cleaner = New(c)
	return n
}

func (n *liveNode) Sync(_ context.Context, r podsync.SyncRequest) (podsync.SyncResult, error) {
	if err := os.MkdirAll(n.layout.Pod(r.Pod.UID), 0o750); err != nil {
		return podsync.SyncResult{}, err
	}
	n.started <- struct{}{}
	// The runtime creates the sandbox now. A start in progress goes on for some time after its end was requested.
	<-n.goOn
	err := os.WriteFile(n.layout.EtcHosts(r.Pod.UID), nil, 0o600)
	n.written <- err
	return podsync.SyncResult{}, err
}

func (n *liveNode) Terminate(_ context.Context, r podsync.TerminateRequest) error {
	n.stopped <- r.Pod.UID
	return nil
}

func (n *liveNode) CleanUp(context.Context, *v1.Pod, *kubecontainer.PodStatus) error { return nil }

func (n *liveNode) TerminateRuntimePod(context.Context, *kubecontainer.Pod) error { return nil }

// add configures a pod and passes it to the pod workers, as the sync loop does; drop removes it.
func (n *liveNode) add(pod *v1.Pod) {
	n.pods = append(n.pods, pod)
	n.workers.UpdatePod(context.Background(), podworkers.Update{UpdateType: kubetypes.SyncPodCreate, Pod: pod})
	synctest.Wait()
}

func (n *liveNode) drop(pod *v1.Pod) {
	n.pods = slices.DeleteFunc(n.pods, func(p *v1.Pod) bool { return p.UID == pod.UID })
	n.workers.UpdatePod(context.Background(), podworkers.Update{UpdateType: kubetypes.SyncPodKill, Pod: pod})
	synctest.Wait()
}

func (n *liveNode) cleanUp() {
	n.t.Helper()
	if err := n.cleaner.CleanUp(context.Background()); err != nil {
		n.t.Error(err)
	}
	synctest.Wait()
}

func (n *liveNode) phase(uid types.UID) podlifecycle.Phase {
	state, _ := n.store.State(uid)
	return state.Phase
}

// close stops the workers. No start may be in progress.
func (n *liveNode) close() {
	n.cleaner.Wait()
	if err := n.workers.Stop(context.Background()); err != nil {
		n.t.Error(err)
	}
}

// A pod leaves the configuration while it starts, before the runtime runs anything of it. Housekeeping must not remove
// its directory while the start is in progress: the start would fail, or write into a directory that is going away.
func TestDirectoryOfAPodIsKeptWhileItStarts(t *testing.T) {
	for name, pod := range map[string]*v1.Pod{"static": static("uid"), "regular": fixture.Pod("uid")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newLiveNode(t, func(*liveNode) {})
				defer n.close()
				n.add(pod)
				<-n.started
				n.drop(pod)
				n.cleanUp()
				n.goOn <- struct{}{}
				if err := <-n.written; err != nil {
					t.Errorf("the start fails: %v", err)
				}
				synctest.Wait()
				if uid := <-n.stopped; uid != pod.UID {
					t.Errorf("%s is stopped", uid)
				}
				n.cleanUp()
				if exists(n.layout.Pod(pod.UID)) || n.phase(pod.UID) != podlifecycle.Unknown {
					t.Errorf("after its end the pod is %v, its directory exists: %t", n.phase(pod.UID),
						exists(n.layout.Pod(pod.UID)))
				}
			})
		})
	}
}

// Housekeeping removes the cgroup that an earlier pod has left, which takes long, and kills all processes in it. A pod
// that comes back with the same UID starts after that. Meanwhile it can be stopped.
func TestPodThatComesBackStartsAfterTheRemovalOfItsCgroup(t *testing.T) {
	for name, stop := range map[string]bool{"starts": false, "is dropped again": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := fixture.Pod("uid")
				n := newLiveNode(t, func(n *liveNode) {
					n.cgroups = map[types.UID]cm.CgroupName{pod.UID: {"c-uid"}}
					n.destroying = make(chan struct{})
				})
				defer n.close()
				n.cleanUp()
				n.add(pod)
				if len(n.started) > 0 {
					t.Error("the pod starts while its cgroup is being removed")
				}
				n.expectWaitsFor("the removal of what an earlier pod left")
				if stop {
					n.drop(pod)
					if uid := <-n.stopped; uid != pod.UID {
						t.Errorf("%s is stopped", uid)
					}
					close(n.destroying)
					synctest.Wait()
					if len(n.started) > 0 {
						t.Error("the pod starts after its end")
					}
					return
				}
				n.cleanUp()
				close(n.destroying)
				<-n.started
				n.goOn <- struct{}{}
				if err := <-n.written; err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if calls := n.takeCalls(); countOf(calls, "destroy c-uid") != 1 {
					t.Errorf("calls %q", calls)
				}
				n.cleanUp()
				if calls := n.takeCalls(); slices.Contains(calls, "destroy c-uid") {
					t.Error("the cgroup of a running pod is removed")
				}
			})
		})
	}
}

func countOf(calls []string, call string) int {
	count := 0
	for _, c := range calls {
		if c == call {
			count++
		}
	}
	return count
}

func (n *liveNode) expectWaitsFor(want string) {
	n.t.Helper()
	if list := n.workers.Views(); len(list.Workers) != 1 || list.Workers[0].WaitsFor != want {
		n.t.Errorf("workers %+v", list.Workers)
	}
}

// Whatever a worker does, its pod keeps directory and user IDs, although the pod is neither configured nor running.
func TestPodsWithAWorkerKeepDirectoryAndUserIDs(t *testing.T) {
	for _, work := range []podlifecycle.Work{
		podlifecycle.WorkSync, podlifecycle.WorkTerminating, podlifecycle.WorkTerminated,
	} {
		n := newNode(t)
		mkdir(t, n.layout.Pod("uid"))
		n.known["uid"] = podworkers.KnownPod{State: work, HasConfig: true, Orphan: true}
		if err := cleanUp(t, n); err != nil {
			t.Error(err)
		}
		if !exists(n.layout.Pod("uid")) || !slices.Equal(n.keptUserIDs, []types.UID{"uid"}) {
			t.Errorf("%v: directory exists: %t, user IDs are kept of %q", work, exists(n.layout.Pod("uid")), n.keptUserIDs)
		}
	}
}

// A pod gets a worker after housekeeping has listed the workers.
func TestPodThatMayStartByNowIsLeftAlone(t *testing.T) {
	n := newNode(t)
	mkdir(t, n.layout.Pod("uid"))
	n.cgroups = map[types.UID]cm.CgroupName{"uid": {"c-uid"}}
	n.mayStart.Insert("uid")
	if err := cleanUp(t, n); err != nil {
		t.Error(err)
	}
	if !exists(n.layout.Pod("uid")) || slices.Contains(n.takeCalls(), "destroy c-uid") {
		t.Errorf("directory exists: %t", exists(n.layout.Pod("uid")))
	}
}

// A removal that fails must not keep a later pod from starting.
func TestFailedRemovalsEnd(t *testing.T) {
	n := newNode(t)
	write(t, emptyDir(n, "uid", "v"), "file")
	n.cgroups = map[types.UID]cm.CgroupName{"uid": {"c-uid"}}
	n.fail["destroy c-uid"] = errTest
	if err := cleanUp(t, n); err == nil || errors.Is(err, errTest) {
		t.Errorf("error %v", err)
	}
	if calls := n.takeCalls(); !slices.Contains(calls, "destroy c-uid") {
		t.Errorf("calls %q", calls)
	}
}

// While the API server does not answer, one static pod comes back, and another is being stopped. Their mirror pods are
// kept. Only the mirror pod that was found is deleted, not a later one of the same name.
func TestMirrorPodOfAStaticPodThatComesBackIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		for _, name := range []string{"a", "b", "c", "d"} {
			mirror := fixture.Pod(name)
			mirror.UID = types.UID("mirror-" + name)
			n.mirrors = append(n.mirrors, mirror)
			n.orphanedMirrors = append(n.orphanedMirrors, kubecontainer.GetPodFullName(mirror))
		}
		full := n.orphanedMirrors
		n.apiServer = make(chan struct{})
		c := New(n.config())
		if err := c.CleanUp(context.Background()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		back := fixture.Pod("b")
		back.UID = "static-b"
		n.pods = []*v1.Pod{back}
		n.terminating.Insert(full[2])
		close(n.apiServer)
		c.Wait()
		fixture.ExpectEqual(t, "deleted", n.deletedMirrors, []string{full[0] + " mirror-a", full[3] + " mirror-d"})
	})
}
