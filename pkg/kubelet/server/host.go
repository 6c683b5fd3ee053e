package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// PodIdentity resolves static pods and their mirror pods in the API server.
type PodIdentity interface {
	GetPodByFullName(podFullName string) (*v1.Pod, bool)
	GetPodAndMirrorPod(*v1.Pod) (pod, mirrorPod *v1.Pod, wasMirror bool)
	TranslatePodUID(types.UID) kubetypes.ResolvedPodUID
}

// ContainerRuntime lists the pods of the runtime, and reads logs of and checkpoints containers.
type ContainerRuntime interface {
	GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error)
	GetContainerLogs(
		ctx context.Context, pod *v1.Pod, id kubecontainer.ContainerID, options *v1.PodLogOptions, stdout, stderr io.Writer,
	) error
	CheckpointContainer(ctx context.Context, options *runtimeapi.CheckpointContainerRequest) error
}

// RuntimeMetrics returns the runtime's own metrics (KEP-2371).
type RuntimeMetrics interface {
	ListMetricDescriptors(ctx context.Context) ([]*runtimeapi.MetricDescriptor, error)
	ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error)
}

// RunningPods lists the running pods from a short-lived cache.
type RunningPods interface {
	GetPods(ctx context.Context) ([]*kubecontainer.Pod, error)
}

// MachineStats returns cAdvisor's version information.
type MachineStats interface {
	VersionInfo() (*cadvisorapi.VersionInfo, error)
}

// HostConfig is the configuration of a Host. All fields are required.
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
	// Machine is the hardware at start.
	Machine *cadvisorapi.MachineInfo
	// SyncLoopHealth is nil while the sync loop makes progress.
	SyncLoopHealth func(*http.Request) error
	// SystemLogs serves the node's own logs, see NewSystemLogs.
	SystemLogs http.Handler
	// CheckpointDir is the directory for container checkpoints.
	CheckpointDir string
	// Now is the time in the names of checkpoints.
	Now func() time.Time
}

// Host implements the host interface of the kubelet API. It has no state; all methods may be called after the runtime
// was first up.
type Host struct {
	*StatsHost
	cfg HostConfig
}

var _ stockserver.HostInterface = &Host{}

// NewHost returns a host. It starts nothing.
func NewHost(cfg HostConfig) *Host { return &Host{StatsHost: cfg.Stats, cfg: cfg} }

// GetVersionInfo returns kernel and operating system from cAdvisor.
func (h *Host) GetVersionInfo() (*cadvisorapi.VersionInfo, error) {
	return h.cfg.CAdvisor.VersionInfo()
}

// GetCachedMachineInfo returns the hardware at start.
func (h *Host) GetCachedMachineInfo() (*cadvisorapi.MachineInfo, error) { return h.cfg.Machine, nil }

// GetRunningPods returns the running pods, with only those fields that the runtime has.
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

// CheckpointContainer writes the state of a running container to an archive in the checkpoint directory. It sets the
// archive's path in request.Location.
func (h *Host) CheckpointContainer(
	ctx context.Context, uid types.UID, fullName, name string, request *runtimeapi.CheckpointContainerRequest,
) error {
	container, err := h.runningContainer(ctx, fullName, uid, name)
	if err != nil {
		return err
	}
	if container == nil {
		return fmt.Errorf("container %v not found", name)
	}
	archive := fmt.Sprintf("checkpoint-%s-%s-%s.tar", fullName, name, h.cfg.Now().Format(time.RFC3339))
	request.Location = filepath.Join(h.cfg.CheckpointDir, archive)
	request.ContainerId = container.ID.ID
	return h.cfg.Runtime.CheckpointContainer(ctx, request)
}
