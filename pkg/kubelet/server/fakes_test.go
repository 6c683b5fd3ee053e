package server

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorv2 "github.com/google/cadvisor/info/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// fakeWorld implements the dependencies of a host: a runtime with the pods in running, and a stock pod manager.
type fakeWorld struct {
	pods     kubepod.Manager
	statuses map[types.UID]v1.PodStatus
	running  []*kubecontainer.Pod
	mounted  kubecontainer.VolumeMap
	// calls are the calls of the runtime, in order.
	calls []string
	// logged, tty and checkpoint are the arguments of the last such call.
	logged     kubecontainer.ContainerID
	tty        bool
	checkpoint *runtimeapi.CheckpointContainerRequest
	cgroupPod  types.UID
}

func newWorld(pods ...*v1.Pod) *fakeWorld {
	w := &fakeWorld{pods: kubepod.NewBasicPodManager(), statuses: map[types.UID]v1.PodStatus{}}
	w.pods.SetPods(pods)
	return w
}

func (w *fakeWorld) statsHost() *StatsHost {
	host := NewStatsHost(StatsHostConfig{
		Pods: w.pods, Status: w, Cgroups: w, Volumes: w, Raw: w,
		Node: func(context.Context) (*v1.Node, error) {
			return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, nil
		},
	})
	host.SetStats(noStats{})
	return host
}

func (w *fakeWorld) host() *Host {
	return NewHost(HostConfig{
		Stats: w.statsHost(), Identity: w.pods, Runtime: w, Metrics: w, Running: runningCache{w}, Streaming: w, Runner: w,
		CAdvisor: w, Machine: &cadvisorapi.MachineInfo{NumCores: 3},
		SyncLoopHealth: func(*http.Request) error { return nil },
		SystemLogs:     http.NotFoundHandler(),
		CheckpointDir:  "/checkpoints",
		Now:            func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) },
	})
}

func (w *fakeWorld) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	status, known := w.statuses[uid]
	return status, known
}

func (w *fakeWorld) GetPods(context.Context, bool) ([]*kubecontainer.Pod, error) {
	return w.running, nil
}

func (w *fakeWorld) GetContainerLogs(
	_ context.Context, _ *v1.Pod, id kubecontainer.ContainerID, _ *v1.PodLogOptions, stdout, _ io.Writer,
) error {
	w.logged = id
	if stdout != nil {
		_, _ = io.WriteString(stdout, "a line\n")
	}
	return nil
}

func (w *fakeWorld) CheckpointContainer(_ context.Context, r *runtimeapi.CheckpointContainerRequest) error {
	w.checkpoint = r
	return nil
}

func (w *fakeWorld) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, nil
}

func (w *fakeWorld) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, nil
}

func (w *fakeWorld) GetExec(
	_ context.Context, id kubecontainer.ContainerID, cmd []string, _, _, _, tty bool,
) (*url.URL, error) {
	return w.stream("exec", id.ID, tty)
}

func (w *fakeWorld) GetAttach(_ context.Context, id kubecontainer.ContainerID, _, _, _, tty bool) (*url.URL, error) {
	return w.stream("attach", id.ID, tty)
}

func (w *fakeWorld) GetPortForward(_ context.Context, _, _ string, uid types.UID, _ []int32) (*url.URL, error) {
	return w.stream("portforward", string(uid), false)
}

func (w *fakeWorld) stream(kind, id string, tty bool) (*url.URL, error) {
	w.calls, w.tty = append(w.calls, kind+" "+id), tty
	return &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/" + kind + "/" + id}, nil
}

func (w *fakeWorld) RunInContainer(
	_ context.Context, id kubecontainer.ContainerID, _ []string, _ time.Duration,
) ([]byte, error) {
	w.calls = append(w.calls, "run "+id.ID)
	return []byte("output"), nil
}

func (w *fakeWorld) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	return &cadvisorapi.VersionInfo{KernelVersion: "6"}, nil
}

func (w *fakeWorld) GetRequestedContainersInfo(
	name string, _ cadvisorv2.RequestOptions,
) (map[string]*cadvisorapi.ContainerInfo, error) {
	return map[string]*cadvisorapi.ContainerInfo{name: {}}, nil
}

func (w *fakeWorld) GetMountedVolumesForPod(volumetypes.UniquePodName) kubecontainer.VolumeMap {
	return w.mounted
}

func (w *fakeWorld) GetNodeConfig() cm.NodeConfig { return cm.NodeConfig{NodeName: "n"} }
func (w *fakeWorld) GetPodCgroupRoot() string     { return "/kubepods" }

func (w *fakeWorld) NewPodContainerManager() cm.PodContainerManager { return cgroupNames{w: w} }

// cgroupNames has the cgroup of one pod.
type cgroupNames struct {
	cm.PodContainerManager
	w *fakeWorld
}

func (c cgroupNames) IsPodCgroup(cgroup string) (bool, types.UID) {
	return cgroup == "/kubepods/pod"+string(c.w.cgroupPod), c.w.cgroupPod
}

type runningCache struct{ w *fakeWorld }

func (c runningCache) GetPods(ctx context.Context) ([]*kubecontainer.Pod, error) {
	return c.w.GetPods(ctx, false)
}

// noStats has no stats.
type noStats struct{}

func (noStats) ListPodStats(context.Context) ([]statsapi.PodStats, error) { return nil, nil }
func (noStats) ListPodCPUAndMemoryStats(context.Context) ([]statsapi.PodStats, error) {
	return nil, nil
}
func (noStats) ListPodStatsAndUpdateCPUNanoCoreUsage(context.Context) ([]statsapi.PodStats, error) {
	return nil, nil
}
func (noStats) GetCgroupStats(string, bool) (*statsapi.ContainerStats, *statsapi.NetworkStats, error) {
	return &statsapi.ContainerStats{}, &statsapi.NetworkStats{}, nil
}
func (noStats) GetCgroupCPUAndMemoryStats(string, bool) (*statsapi.ContainerStats, error) {
	return &statsapi.ContainerStats{}, nil
}
func (noStats) ImageFsStats(context.Context) (*statsapi.FsStats, *statsapi.FsStats, error) {
	return &statsapi.FsStats{}, &statsapi.FsStats{}, nil
}
func (noStats) RootFsStats() (*statsapi.FsStats, error)     { return &statsapi.FsStats{}, nil }
func (noStats) RlimitStats() (*statsapi.RlimitStats, error) { return &statsapi.RlimitStats{}, nil }

func testPod(name, uid string, static bool) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", TTY: true}}},
	}
	if static {
		pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: "file"}
	}
	return pod
}

func mirrorOf(static *v1.Pod, uid string) *v1.Pod {
	mirror := static.DeepCopy()
	mirror.UID = types.UID(uid)
	mirror.Annotations = map[string]string{
		kubetypes.ConfigSourceAnnotationKey: "api", kubetypes.ConfigMirrorAnnotationKey: "hash",
	}
	return mirror
}

func runningPod(pod *v1.Pod, containerID string) *kubecontainer.Pod {
	return &kubecontainer.Pod{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace,
		Containers: []*kubecontainer.Container{
			{ID: kubecontainer.ContainerID{Type: "t", ID: containerID}, Name: "c"},
		}}
}
