package server

import (
	"context"
	"io"
	"net/http"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// PodIdentity resolves the two faces of a static pod: its own and that of the mirror pod which the API server knows.
type PodIdentity interface {
	GetPodByFullName(podFullName string) (*v1.Pod, bool)
	GetPodAndMirrorPod(*v1.Pod) (pod, mirrorPod *v1.Pod, wasMirror bool)
	TranslatePodUID(types.UID) kubetypes.ResolvedPodUID
}

// ContainerRuntime lists what really runs, and reads and checkpoints containers.
type ContainerRuntime interface {
	GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error)
	GetContainerLogs(
		ctx context.Context, pod *v1.Pod, id kubecontainer.ContainerID, options *v1.PodLogOptions, stdout, stderr io.Writer,
	) error
	CheckpointContainer(ctx context.Context, options *runtimeapi.CheckpointContainerRequest) error
}

// RuntimeMetrics are the runtime's own metrics (KEP-2371).
type RuntimeMetrics interface {
	ListMetricDescriptors(ctx context.Context) ([]*runtimeapi.MetricDescriptor, error)
	ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error)
}

// RunningPods lists what runs from a short-lived cache.
type RunningPods interface {
	GetPods(ctx context.Context) ([]*kubecontainer.Pod, error)
}

// MachineStats is what cAdvisor says about itself.
type MachineStats interface {
	VersionInfo() (*cadvisorapi.VersionInfo, error)
}

// HostConfig is what a Host is made of. All fields are required.
type HostConfig struct {
	Stats    *StatsHost
	Identity PodIdentity
	Runtime  ContainerRuntime
	Metrics  RuntimeMetrics
	// Running may lag behind Runtime; it serves the list of running pods only.
	Running   RunningPods
	Streaming kubecontainer.StreamingRuntime
	Runner    kubecontainer.CommandRunner
	CAdvisor  MachineStats
	// Machine is the hardware as it was at start.
	Machine *cadvisorapi.MachineInfo
	// SyncLoopHealth is nil while the sync loop makes progress.
	SyncLoopHealth func(*http.Request) error
	// SystemLogs serves the node's own logs, see NewSystemLogs.
	SystemLogs http.Handler
	// CheckpointDir is where container checkpoints are written.
	CheckpointDir string
	// Now names checkpoints.
	Now func() time.Time
}

// Host answers everything the kubelet API asks. It holds no state of its own; all methods may be called at any time
// after the runtime was reached once.
type Host struct {
	*StatsHost
	cfg HostConfig
}

var _ stockserver.HostInterface = &Host{}

// NewHost returns a host. It starts nothing.
func NewHost(cfg HostConfig) *Host { return &Host{StatsHost: cfg.Stats, cfg: cfg} }

// GetVersionInfo returns cAdvisor's view of kernel and operating system.
func (h *Host) GetVersionInfo() (*cadvisorapi.VersionInfo, error) {
	return h.cfg.CAdvisor.VersionInfo()
}

// GetCachedMachineInfo returns the hardware as it was at start.
func (h *Host) GetCachedMachineInfo() (*cadvisorapi.MachineInfo, error) { return h.cfg.Machine, nil }

// GetRunningPods returns the pods the runtime runs, with only the fields that the runtime knows.
func (h *Host) GetRunningPods(ctx context.Context) ([]*v1.Pod, error) {
	running, err := h.cfg.Running.GetPods(ctx)
	if err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, 0, len(running))
	for _, pod := range running {
		pods = append(pods, pod.ToAPIPod())
	}
	return pods, nil
}

// ServeLogs serves the node's own logs.
func (h *Host) ServeLogs(w http.ResponseWriter, req *http.Request) {
	h.cfg.SystemLogs.ServeHTTP(w, req)
}

// SyncLoopHealthCheck fails when the sync loop hangs.
func (h *Host) SyncLoopHealthCheck(req *http.Request) error { return h.cfg.SyncLoopHealth(req) }

// ListMetricDescriptors describes the runtime's own metrics.
func (h *Host) ListMetricDescriptors(ctx context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return h.cfg.Metrics.ListMetricDescriptors(ctx)
}

// ListPodSandboxMetrics returns the runtime's own metrics of all pods.
func (h *Host) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return h.cfg.Metrics.ListPodSandboxMetrics(ctx)
}
