package allocations

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/allocation/state"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podview"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/test/fakeworkers"
)

// newPod returns a pod that requests milliCPU for the pod, for its container and for a sidecar.
func newPod(name string, milliCPU int64) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	amount := *resource.NewMilliQuantity(milliCPU, resource.DecimalSI)
	cpu := v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: amount}}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{
				{Name: "setup", Resources: cpu}, {Name: "sidecar", Resources: cpu, RestartPolicy: &always},
			},
			Containers: []v1.Container{{Name: "main", Resources: cpu}},
			Resources:  &cpu,
		},
	}
}

// node is the set of pods of a node.
type node struct {
	pods map[types.UID]*v1.Pod
}

func (n *node) active() []*v1.Pod {
	var pods []*v1.Pod
	for _, pod := range n.pods {
		pods = append(pods, pod)
	}
	return pods
}

func (n *node) byUID(uid types.UID) (*v1.Pod, bool) {
	pod, found := n.pods[uid]
	return pod, found
}

func statuses() status.Manager { return status.NewManager(nil, kubepod.NewBasicPodManager(), nil, nil) }

func ready() config.SourcesReady {
	return config.NewSourcesReady(func(sets.Set[string]) bool { return true })
}

func (n *node) manager(t require, checkpoint state.State, sync func(*v1.Pod)) *Manager {
	m, err := New(Config{
		Checkpoint: checkpoint, Status: statuses(), Sync: sync, ActivePods: n.active, PodByUID: n.byUID,
		SourcesReady: ready(), Recorder: record.NewFakeRecorder(1000),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// require is the part of a test that helpers use; *testing.T and *rapid.T implement it.
type require interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func checkpointIn(t require, dir string) state.State {
	t.Helper()
	checkpoint, err := state.NewStateCheckpoint(dir, CheckpointName)
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint
}

// hangingDisk is a checkpoint whose calls block, once hang is set, until hang is closed.
type hangingDisk struct {
	state.State
	hang chan struct{}
}

func (d *hangingDisk) wait() {
	if d.hang != nil {
		<-d.hang
	}
}

func (d *hangingDisk) GetPodResourceInfoMap() state.PodResourceInfoMap {
	d.wait()
	return d.State.GetPodResourceInfoMap()
}

func (d *hangingDisk) GetPodResourceInfo(uid types.UID) (state.PodResourceInfo, bool) {
	d.wait()
	return d.State.GetPodResourceInfo(uid)
}

func (d *hangingDisk) SetPodResourceInfo(logger klog.Logger, uid types.UID, info state.PodResourceInfo) error {
	d.wait()
	return d.State.SetPodResourceInfo(logger, uid, info)
}

// instantSyncer implements the operations of the pod workers; each returns at once.
type instantSyncer struct{}

func (instantSyncer) Sync(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
	return podsync.SyncResult{}, nil
}
func (instantSyncer) Terminate(context.Context, podsync.TerminateRequest) error              { return nil }
func (instantSyncer) TerminateRuntimePod(context.Context, *kubecontainer.Pod) error          { return nil }
func (instantSyncer) CleanUp(context.Context, *v1.Pod, *kubecontainer.PodStatus) error       { return nil }
func (instantSyncer) Eventf(_ runtime.Object, eventType, reason, format string, args ...any) {}
func (instantSyncer) GetPods() []*v1.Pod                                                     { return nil }

// While an admission waits for a checkpoint that hangs, the active pods can be listed with their allocations, and a pod
// can be stopped.
func TestHangingCheckpointBlocksNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, added := newPod("running", 100), newPod("added", 50)
		n := &node{pods: map[types.UID]*v1.Pod{running.UID: running}}
		disk := &hangingDisk{State: state.NewStateMemory(nil)}
		m := n.manager(t, disk, func(*v1.Pod) {})
		m.AddPod(nil, running)
		n.pods[running.UID] = newPod("running", 200) // a resize that is not decided yet

		disk.hang = make(chan struct{})
		admitted := make(chan bool, 1)
		go func() {
			ok, _, _ := m.AddPod(n.active(), added)
			admitted <- ok
		}()
		synctest.Wait()
		if len(admitted) != 0 {
			t.Fatal("the admission does not wait for the disk")
		}

		lifecycle := podlifecycle.NewStore()
		view := podview.New(configured(n.active), lifecycle, statuses()).WithAllocations(m)
		if got := cpuOf(view.Allocated()[0]); got != 100 {
			t.Errorf("the active pod has %dm CPU, want the allocated 100m", got)
		}

		cache := kubecontainer.NewCache()
		cache.UpdateTime(time.Now().Add(time.Hour))
		workers := podworkers.New(podworkers.Config{
			Store: lifecycle, Syncer: instantSyncer{}, Runtime: instantSyncer{}, PodCache: cache, Recorder: instantSyncer{},
			Allocation: m, Hastener: fakeworkers.Hastener{}, Terminations: fakeworkers.Terminations{},
			EarlierStaticPods: fakeworkers.EarlierStaticPods{}, Overdue: fakeworkers.NoneOverdue,
			Queue: queue.NewBasicWorkQueue(clock.RealClock{}), ResyncInterval: time.Minute, BackoffPeriod: time.Minute,
		})
		workers.UpdatePod(t.Context(), podworkers.Update{UpdateType: kubetypes.SyncPodKill, Pod: running})
		synctest.Wait()
		if !lifecycle.IsPodKnownTerminated(running.UID) {
			t.Error("the pod is not stopped")
		}

		close(disk.hang)
		if !<-admitted {
			t.Error("the pod is not admitted")
		}
		if err := workers.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

type configured func() []*v1.Pod

func (c configured) GetPods() []*v1.Pod { return c() }

func (c configured) GetPodByUID(uid types.UID) (*v1.Pod, bool) {
	i := slices.IndexFunc(c(), func(pod *v1.Pod) bool { return pod.UID == uid })
	if i < 0 {
		return nil, false
	}
	return c()[i], true
}

func cpuOf(pod *v1.Pod) int64 { return pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() }

// The checkpoint has the new allocation before the pod is synchronized with it.
func TestResizeIsInCheckpointBeforeSync(t *testing.T) {
	dir := t.TempDir()
	pod := newPod("a", 100)
	n := &node{pods: map[types.UID]*v1.Pod{pod.UID: pod}}
	var onDisk []int64
	m := n.manager(t, checkpointIn(t, dir), func(pod *v1.Pod) {
		info, _ := checkpointIn(t, dir).GetPodResourceInfo(pod.UID)
		requests := info.ContainerResources["main"].Requests
		onDisk = append(onDisk, requests.Cpu().MilliValue())
	})
	m.AddPod(nil, pod)
	n.pods[pod.UID] = newPod("a", 200)
	m.PushPendingResize(pod.UID)
	m.RetryPendingResizes(allocation.TriggerReasonPodUpdated)
	if diff := cmp.Diff([]int64{200}, onDisk); diff != "" {
		t.Errorf("in the checkpoint when the pod is synchronized (-want +got):\n%s", diff)
	}
}

// brokenDisk is a checkpoint that cannot be written.
type brokenDisk struct{ state.State }

func (brokenDisk) SetPodResourceInfo(klog.Logger, types.UID, state.PodResourceInfo) error {
	return errors.New("no space left on device")
}

// As with stock, a checkpoint that cannot be written does not prevent the admission of the pod.
func TestFailedCheckpointDoesNotRejectPods(t *testing.T) {
	pod := newPod("a", 100)
	m := (&node{}).manager(t, brokenDisk{state.NewStateMemory(nil)}, func(*v1.Pod) {})
	if ok, reason, message := m.AddPod(nil, pod); !ok {
		t.Errorf("the pod is not admitted: %s: %s", reason, message)
	}
	if err := m.SetAllocatedResources(newPod("a", 200)); err == nil {
		t.Error("SetAllocatedResources returns no error")
	}
	if got, _ := m.UpdatePodFromAllocation(pod); cpuOf(got) != 200 {
		t.Errorf("allocated are %dm CPU, want 200m", cpuOf(got))
	}
}

// For any sequence of changes and restarts of the agent, allocations and checkpoint are equal to those of stock.
func TestLikeStock(t *testing.T) {
	dirs := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(dirs, "")
		if err != nil {
			t.Fatal(err)
		}
		oursDir, stockDir := filepath.Join(dir, "ours"), filepath.Join(dir, "stock")
		n := &node{pods: map[types.UID]*v1.Pod{}}
		start := func() []allocation.Manager {
			return []allocation.Manager{
				n.manager(t, checkpointIn(t, oursDir), func(*v1.Pod) {}),
				allocation.NewManager(stockDir, statuses(), func(*v1.Pod) {}, n.active, n.byUID, ready(),
					record.NewFakeRecorder(1000)),
			}
		}
		managers := start()
		each := func(do func(allocation.Manager)) {
			for _, m := range managers {
				do(m)
			}
		}
		drawn := func() *v1.Pod {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			return newPod(name, rapid.Int64Range(1, 4).Draw(t, "CPU"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				pod := drawn()
				n.pods[pod.UID] = pod
				each(func(m allocation.Manager) { m.AddPod(n.active(), pod) })
			},
			"resize": func(*rapid.T) {
				pod := drawn()
				if _, there := n.pods[pod.UID]; there {
					n.pods[pod.UID] = pod
				}
				each(func(m allocation.Manager) {
					m.PushPendingResize(pod.UID)
					m.RetryPendingResizes(allocation.TriggerReasonPodUpdated)
				})
			},
			"remove": func(*rapid.T) {
				pod := drawn()
				delete(n.pods, pod.UID)
				each(func(m allocation.Manager) { m.RemovePod(pod.UID) })
			},
			"housekeeping": func(*rapid.T) { each(func(m allocation.Manager) { m.RemoveOrphanedPods(sets.KeySet(n.pods)) }) },
			"restart":      func(*rapid.T) { managers = start() },
			"": func(t *rapid.T) {
				for _, name := range []string{"a", "b", "c"} {
					pod := newPod(name, 9)
					ours, oursHas := managers[0].UpdatePodFromAllocation(pod)
					stocks, stockHas := managers[1].UpdatePodFromAllocation(pod)
					if diff := cmp.Diff(stocks, ours); diff != "" || oursHas != stockHas {
						t.Fatalf("pod %s, allocated: %t, with stock: %t, (- stock, + ours):\n%s", name, oursHas, stockHas, diff)
					}
				}
				if diff := cmp.Diff(file(t, stockDir), file(t, oursDir)); diff != "" {
					t.Fatalf("file (- stock, + ours):\n%s", diff)
				}
			},
		})
	})
}

// file returns the content of the checkpoint in dir, empty if it does not exist.
func file(t require, dir string) string {
	content, err := os.ReadFile(filepath.Join(dir, CheckpointName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(content)
}
