package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// world is everything around a Syncer. It writes down what is called, and fails a call once if a script says so.
type world struct {
	mu      sync.Mutex
	journal []string
	// script has errors that the named calls return, first come first served.
	script map[string][]error
	events *record.FakeRecorder

	api         v1.PodStatus
	published   map[types.UID]v1.PodStatus
	cgroup      bool
	terminating bool
	network     error
	node        *v1.Node
	inRuntime   *kubecontainer.PodStatus
	runtimeDid  kubecontainer.PodSyncResult
	resizing    bool
	cleared     bool
	changed     bool
	notDeleted  bool
	volumesLeft int
	secrets     map[string]bool

	generated []kubecontainer.PodStatus
	killed    []kubecontainer.Pod
	synced    struct {
		status     *kubecontainer.PodStatus
		pull       []v1.Secret
		restartAll bool
		canceled   bool
	}
	onVolumes func()
}

func newWorld() *world {
	return &world{
		script:    map[string][]error{},
		events:    record.NewFakeRecorder(100),
		published: map[types.UID]v1.PodStatus{},
		api:       v1.PodStatus{Phase: v1.PodPending, PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}},
		node:      &v1.Node{},
		inRuntime: &kubecontainer.PodStatus{ID: "uid"},
		secrets:   map[string]bool{},
	}
}

// did notes a call and returns the error the script has for it.
func (w *world) did(format string, args ...any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	call := fmt.Sprintf(format, args...)
	w.journal = append(w.journal, call)
	queue := w.script[call]
	if len(queue) == 0 {
		return nil
	}
	w.script[call] = queue[1:]
	return queue[0]
}

func (w *world) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.journal
	w.journal = nil
	return j
}

// sent returns the events since the last call.
func (w *world) sent() []string {
	var out []string
	for {
		select {
		case e := <-w.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func (w *world) config() Config {
	return Config{
		Generator: w, Statuses: w, Runtime: runtimeOf{w}, Stopper: w, Containers: w, CgroupsPerQOS: true, Lifecycle: w,
		NetworkErrors: func() error { return w.network },
		Secrets:       registry{w, "secrets"}, ConfigMaps: registry{w, "config maps"},
		Mirrors: w, Node: func(context.Context) (*v1.Node, error) { return w.node, w.did("node") },
		DataDirs: w, Volumes: w, VolumePaths: w, Probes: w, Reasons: w, UserNamespaces: w,
		BackOff:  flowcontrol.NewBackOff(1, 1),
		Reject:   func(_ context.Context, _ *v1.Pod, reason, _ string) { _ = w.did("reject %s", reason) },
		Requeue:  func(context.Context, *v1.Pod, *v1.Pod) { _ = w.did("requeue") },
		Relist:   func(uid types.UID) { _ = w.did("relist %s", uid) },
		Recorder: w.events,
		Features: Features{InPlacePodVerticalScaling: true, ContainerRestartRules: true, RestartAllContainersOnContainerExits: true, DynamicResourceAllocation: true},
	}
}

func (w *world) Generate(_ context.Context, _ *v1.Pod, s *kubecontainer.PodStatus, terminal bool) v1.PodStatus {
	w.generated = append(w.generated, *s)
	_ = w.did("generate terminal=%t", terminal)
	return *w.api.DeepCopy()
}

// runtimeOf is the runtime of a world; it reads statuses by another signature than the status manager.
type runtimeOf struct{ *world }

func (r runtimeOf) GetPodStatus(context.Context, *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	err := r.did("get status")
	out := *r.inRuntime
	return &out, err
}

func (w *world) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	s, ok := w.published[uid]
	return s, ok
}

func (w *world) SetPodStatus(_ klog.Logger, pod *v1.Pod, s v1.PodStatus) (v1.PodStatus, bool) {
	w.published[pod.UID] = s
	_ = w.did("publish")
	return s, true
}

func (w *world) TerminatePod(klog.Logger, *v1.Pod) { _ = w.did("final") }

func (w *world) SetPodResizeInProgressCondition(_ types.UID, reason, message string, generation int64) (int64, bool) {
	_ = w.did("resize condition %q %q", reason, message)
	return generation, w.changed
}

func (w *world) ClearPodResizeInProgressCondition(types.UID) (int64, bool) {
	_ = w.did("no resize condition")
	return 3, w.cleared
}

func (w *world) SyncPod(ctx context.Context, _ *v1.Pod, s *kubecontainer.PodStatus, pull []v1.Secret, _ *flowcontrol.Backoff, restartAll bool) kubecontainer.PodSyncResult {
	w.synced.status, w.synced.pull, w.synced.restartAll, w.synced.canceled = s, pull, restartAll, ctx.Err() != nil
	out := w.runtimeDid
	if err := w.did("run containers"); err != nil {
		out.SyncError = err
	}
	return out
}

func (w *world) Type() string { return "fake" }

func (w *world) KillPod(_ context.Context, _ *v1.Pod, running kubecontainer.Pod, grace *int64) error {
	w.killed = append(w.killed, running)
	var names []string
	for _, c := range running.Containers {
		names = append(names, c.Name)
	}
	g := "own"
	if grace != nil {
		g = fmt.Sprint(*grace)
	}
	err := w.did("kill [%s] grace=%s", strings.Join(names, " "), g)
	if err == nil {
		for _, c := range w.inRuntime.ContainerStatuses {
			if slices.Contains(names, c.Name) {
				c.State = kubecontainer.ContainerStateExited
			}
		}
	}
	return err
}

func (w *world) GetPod(context.Context, types.UID) (*kubecontainer.Pod, error) {
	return &kubecontainer.Pod{ID: "uid"}, w.did("get pod")
}

func (w *world) StopContainer(_ context.Context, id string, timeout int64) error {
	return w.did("stop %s %d", id, timeout)
}

func (w *world) StopPodSandbox(_ context.Context, id string) error {
	return w.did("stop sandbox %s", id)
}

func (w *world) IsPodResizeInProgress(*v1.Pod, *kubecontainer.PodStatus) bool { return w.resizing }

func (w *world) UpdateActuatedPodLevelResources(*v1.Pod) error { return w.did("actuated") }

func (w *world) UpdateQOSCgroups(klog.Logger) error { return w.did("qos") }

func (w *world) NewPodContainerManager() cm.PodContainerManager { return cgroups{w: w} }

func (w *world) UnprepareDynamicResources(context.Context, *v1.Pod) error { return w.did("unprepare") }

func (w *world) IsPodTerminationRequested(types.UID) bool { return w.terminating }

func (w *world) CreateMirrorPod(context.Context, *v1.Pod) error { return w.did("create mirror") }

func (w *world) DeleteMirrorPod(_ context.Context, name string, uid *types.UID) (bool, error) {
	err := w.did("delete mirror %s %s", name, *uid)
	return err == nil && !w.notDeleted, err
}

func (w *world) MakePodDataDirs(*v1.Pod) error { return w.did("make dirs") }

func (w *world) WaitForAttachAndMount(context.Context, *v1.Pod) error {
	if w.onVolumes != nil {
		w.onVolumes()
	}
	return w.did("mount")
}

func (w *world) WaitForUnmount(context.Context, *v1.Pod) error { return w.did("unmount") }

func (w *world) VolumesExist(context.Context, types.UID) bool {
	_ = w.did("volumes left=%d", w.volumesLeft)
	w.volumesLeft--
	return w.volumesLeft >= 0
}

func (w *world) AddPod(context.Context, *v1.Pod) { _ = w.did("add probes") }
func (w *world) StopLivenessAndStartup(*v1.Pod)  { _ = w.did("stop liveness") }
func (w *world) RemovePod(*v1.Pod)               { _ = w.did("remove probes") }
func (w *world) Release(klog.Logger, types.UID)  { _ = w.did("release userns") }
func (w *world) Update(types.UID, kubecontainer.PodSyncResult) {
	_ = w.did("reasons")
}

// registry is one of the two managers of referenced objects.
type registry struct {
	w    *world
	name string
}

func (r registry) RegisterPod(*v1.Pod)   { _ = r.w.did("register %s", r.name) }
func (r registry) UnregisterPod(*v1.Pod) { _ = r.w.did("unregister %s", r.name) }
func (r registry) GetSecret(namespace, name string) (*v1.Secret, error) {
	if !r.w.secrets[name] {
		return nil, errors.New("not found")
	}
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, nil
}

// cgroups is the cgroup of the one pod there is.
type cgroups struct {
	cm.PodContainerManager
	w *world
}

func (c cgroups) Exists(*v1.Pod) bool { return c.w.cgroup }

func (c cgroups) EnsureExists(klog.Logger, *v1.Pod) error {
	err := c.w.did("make cgroup")
	c.w.cgroup = err == nil
	return err
}

func (c cgroups) GetPodContainerName(*v1.Pod) (cm.CgroupName, string) {
	return cm.CgroupName{"kubepods", "poduid"}, "/kubepods/poduid"
}

func (c cgroups) Destroy(_ klog.Logger, name cm.CgroupName) error {
	return c.w.did("destroy cgroup %s", strings.Join(name, "/"))
}

func testPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: "uid", Generation: 7},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}},
	}
}

func staticPod() *v1.Pod {
	pod := testPod()
	pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
	return pod
}

func container(name string, state kubecontainer.State) *kubecontainer.Status {
	return &kubecontainer.Status{ID: kubecontainer.ContainerID{Type: "fake", ID: "id-" + name}, Name: name, State: state}
}

func runtimeStatus(containers ...*kubecontainer.Status) *kubecontainer.PodStatus {
	return &kubecontainer.PodStatus{ID: "uid", Name: "pod", Namespace: "ns", ContainerStatuses: containers}
}

func running(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

// expect compares what was called with what should have been.
func expect(t testing.TB, w *world, want ...string) {
	t.Helper()
	if got := w.take(); !slices.Equal(got, want) {
		t.Errorf("calls\n got %q\nwant %q", got, want)
	}
}

func expectEvents(t testing.TB, w *world, want ...string) {
	t.Helper()
	if got := w.sent(); !slices.Equal(got, want) {
		t.Errorf("events\n got %q\nwant %q", got, want)
	}
}
