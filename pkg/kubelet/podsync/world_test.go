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

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/test/fixture"
)

// world implements all dependencies of a Syncer. It records calls, and returns the errors of its script.
type world struct {
	mu      sync.Mutex
	journal []string
	// script has the errors of calls, in the order in which they are returned.
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

// called records a call and returns its next error in the script.
func (w *world) called(format string, args ...any) error {
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

func (w *world) takeCalls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.journal
	w.journal = nil
	return j
}

// takeEvents returns the events since the last call.
func (w *world) takeEvents() []string {
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
		Generator: w, Statuses: w, Runtime: runtimeOf{w}, Stopper: w, Processes: noProcesses{}, Containers: w,
		CgroupsPerQOS: true, Lifecycle: w,
		NetworkErrors: func() error { return w.network },
		Secrets:       registry{w, "secrets"}, ConfigMaps: registry{w, "config maps"},
		Mirrors: w, Node: func(context.Context) (*v1.Node, error) { return w.node, w.called("node") },
		DataDirs: w, Volumes: w, VolumePaths: w, Probes: w, StartErrors: w, UserNamespaces: w,
		BackOff: flowcontrol.NewBackOff(1, 1), Shutdown: noShutdown{}, UnmountsVolumes: func() bool { return true },
		Reject:   func(_ context.Context, _ *v1.Pod, reason, _ string) { _ = w.called("reject %s", reason) },
		Requeue:  func(context.Context, *v1.Pod, *v1.Pod) { _ = w.called("requeue") },
		Relist:   func(uid types.UID) { _ = w.called("relist %s", uid) },
		Recorder: w.events,
		Features: Features{
			InPlacePodVerticalScaling: true, ContainerRestartRules: true, RestartAllContainersOnContainerExits: true,
			DynamicResourceAllocation: true,
		},
	}
}

func (w *world) Generate(_ context.Context, _ *v1.Pod, s *kubecontainer.PodStatus, terminal bool) v1.PodStatus {
	w.mu.Lock()
	w.generated = append(w.generated, *s)
	w.mu.Unlock()
	_ = w.called("generate terminal=%t", terminal)
	return *w.api.DeepCopy()
}

// runtimeOf is the runtime of a world. Its GetPodStatus has another signature than that of the status manager.
type runtimeOf struct{ *world }

func (r runtimeOf) GetPodStatus(context.Context, *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	err := r.called("get status")
	out := *r.inRuntime
	return &out, err
}

func (w *world) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	s, ok := w.published[uid]
	return s, ok
}

func (w *world) SetPodStatus(_ klog.Logger, pod *v1.Pod, s v1.PodStatus) (v1.PodStatus, bool) {
	w.published[pod.UID] = s
	_ = w.called("publish")
	return s, true
}

func (w *world) TerminatePod(klog.Logger, *v1.Pod) { _ = w.called("final") }

func (w *world) SetPodResizeInProgressCondition(_ types.UID, reason, message string, generation int64) (int64, bool) {
	_ = w.called("resize condition %q %q", reason, message)
	return generation, w.changed
}

func (w *world) ClearPodResizeInProgressCondition(types.UID) (int64, bool) {
	_ = w.called("no resize condition")
	return 3, w.cleared
}

func (w *world) SyncPod(
	ctx context.Context, _ *v1.Pod, s *kubecontainer.PodStatus, pull []v1.Secret, _ *flowcontrol.Backoff, restartAll bool,
) kubecontainer.PodSyncResult {
	w.synced.status, w.synced.pull, w.synced.restartAll = s, pull, restartAll
	w.synced.canceled = ctx.Err() != nil
	out := w.runtimeDid
	if err := w.called("run containers"); err != nil {
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
	err := w.called("kill [%s] grace=%s", strings.Join(names, " "), g)
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
	return &kubecontainer.Pod{ID: "uid"}, w.called("get pod")
}

func (w *world) StopContainer(_ context.Context, id string, timeout int64) error {
	return w.called("stop %s %d", id, timeout)
}

func (w *world) StopPodSandbox(_ context.Context, id string) error {
	return w.called("stop sandbox %s", id)
}

func (w *world) IsPodResizeInProgress(*v1.Pod, *kubecontainer.PodStatus) bool { return w.resizing }

func (w *world) UpdateActuatedPodLevelResources(*v1.Pod) error { return w.called("actuated") }

func (w *world) UpdateQOSCgroups(klog.Logger) error { return w.called("qos") }

func (w *world) NewPodContainerManager() cm.PodContainerManager { return cgroups{w: w} }

func (w *world) UnprepareDynamicResources(context.Context, *v1.Pod) error {
	return w.called("unprepare")
}

func (w *world) IsPodTerminationRequested(types.UID) bool { return w.terminating }

func (w *world) CreateMirrorPod(context.Context, *v1.Pod) error { return w.called("create mirror") }

func (w *world) DeleteMirrorPod(_ context.Context, name string, uid *types.UID) (bool, error) {
	err := w.called("delete mirror %s %s", name, *uid)
	return err == nil && !w.notDeleted, err
}

func (w *world) MakePodDataDirs(*v1.Pod) error { return w.called("make dirs") }

func (w *world) WaitForAttachAndMount(context.Context, *v1.Pod) error {
	if w.onVolumes != nil {
		w.onVolumes()
	}
	return w.called("mount")
}

func (w *world) WaitForUnmount(context.Context, *v1.Pod) error { return w.called("unmount") }

func (w *world) VolumesExist(context.Context, types.UID) bool {
	_ = w.called("volumes left=%d", w.volumesLeft)
	w.volumesLeft--
	return w.volumesLeft >= 0
}

func (w *world) AddPod(context.Context, *v1.Pod) { _ = w.called("add probes") }
func (w *world) StopLivenessAndStartup(*v1.Pod)  { _ = w.called("stop liveness") }
func (w *world) RemovePod(*v1.Pod)               { _ = w.called("remove probes") }
func (w *world) Release(klog.Logger, types.UID)  { _ = w.called("release userns") }
func (w *world) Update(types.UID, kubecontainer.PodSyncResult) {
	_ = w.called("reasons")
}

// noShutdown is a ShutdownManager while the machine is not shutting down.
type noShutdown struct{}

func (noShutdown) RestartsAfterShutdown(*v1.Pod) bool { return false }
func (noShutdown) PodStopped(types.UID)               {}

// noProcesses is a PodProcesses without any process.
type noProcesses struct{}

func (noProcesses) Processes(string) ([]escalation.Process, error) { return nil, nil }
func (noProcesses) Kill(context.Context, string) error             { return nil }

// registry is one of the two managers of referenced objects.
type registry struct {
	w    *world
	name string
}

func (r registry) RegisterPod(*v1.Pod)   { _ = r.w.called("register %s", r.name) }
func (r registry) UnregisterPod(*v1.Pod) { _ = r.w.called("unregister %s", r.name) }
func (r registry) GetSecret(namespace, name string) (*v1.Secret, error) {
	if !r.w.secrets[name] {
		return nil, errors.New("not found")
	}
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, nil
}

// cgroups implements the cgroup of a single pod.
type cgroups struct {
	cm.PodContainerManager
	w *world
}

func (c cgroups) Exists(*v1.Pod) bool { return c.w.cgroup }

func (c cgroups) EnsureExists(klog.Logger, *v1.Pod) error {
	err := c.w.called("make cgroup")
	c.w.cgroup = err == nil
	return err
}

func (c cgroups) GetPodContainerName(*v1.Pod) (cm.CgroupName, string) {
	return cm.CgroupName{"kubepods", "poduid"}, "/kubepods/poduid"
}

func (c cgroups) Destroy(_ klog.Logger, name cm.CgroupName) error {
	return c.w.called("destroy cgroup %s", strings.Join(name, "/"))
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

// expectCalls compares the calls since the last comparison.
func expectCalls(t testing.TB, w *world, want ...string) {
	t.Helper()
	fixture.ExpectEqual(t, "calls", w.takeCalls(), want)
}

func expectEvents(t testing.TB, w *world, want ...string) {
	t.Helper()
	fixture.ExpectEqual(t, "events", w.takeEvents(), want)
}
