package generator_test

import (
	"context"
	"net"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

// scenario is everything that a pod status depends on.
type scenario struct {
	pod      *v1.Pod
	runtime  *kubecontainer.PodStatus
	previous *v1.PodStatus
	terminal bool

	resizeConditions []*v1.PodCondition
	startResults     kubecontainer.PodSyncResult
	evict            *lifecycle.ShouldEvictResponse
	node             *v1.Node
	nodeIPs          []net.IP
	handlers         []kubecontainer.RuntimeHandler
	cgroup           map[v1.ResourceName]*cm.ResourceConfig
}

func (s scenario) shouldEvict(*v1.Pod) lifecycle.ShouldEvictResponse { return *s.evict }

// managers are fakes of the managers that the generator calls. Other methods panic.
type managers struct {
	statuses   *fakeStatuses
	probes     fakeProbes
	containers fakeContainers
	runtime    fakeRuntime
}

func newManagers(s scenario) managers {
	return managers{
		statuses:   &fakeStatuses{previous: s.previous, resizes: s.resizeConditions},
		containers: fakeContainers{cgroup: s.cgroup},
	}
}

type fakeStatuses struct {
	status.Manager
	previous *v1.PodStatus
	resizes  []*v1.PodCondition
	cleared  int
}

func (f *fakeStatuses) GetPodStatus(types.UID) (v1.PodStatus, bool) {
	if f.previous == nil {
		return v1.PodStatus{}, false
	}
	return *f.previous, true
}

func (f *fakeStatuses) GetPodResizeConditions(types.UID) []*v1.PodCondition { return f.resizes }

func (f *fakeStatuses) ClearPodResizePendingCondition(types.UID) { f.cleared++ }

func (f *fakeStatuses) ClearPodResizeInProgressCondition(types.UID) (int64, bool) {
	f.cleared++
	return 0, true
}

// fakeProbes sets started for running containers, and ready for those whose name does not end in "1".
type fakeProbes struct{ prober.Manager }

func (fakeProbes) UpdatePodStatus(_ context.Context, _ *v1.Pod, status *v1.PodStatus) {
	for _, list := range [][]v1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range list {
			started := list[i].State.Running != nil
			list[i].Started = &started
			ended := list[i].State.Terminated
			list[i].Ready = started && !strings.HasSuffix(list[i].Name, "1") || ended != nil && ended.ExitCode == 0
		}
	}
}

type fakeContainers struct {
	cm.ContainerManager
	cgroup map[v1.ResourceName]*cm.ResourceConfig
}

func (f fakeContainers) NewPodContainerManager() cm.PodContainerManager {
	return fakeCgroups{cgroup: f.cgroup}
}

func (fakeContainers) UpdateAllocatedResourcesStatus(_ *v1.Pod, status *v1.PodStatus) {
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].AllocatedResourcesStatus = []v1.ResourceStatus{{Name: "example.com/device"}}
	}
}

type fakeCgroups struct {
	cm.PodContainerManager
	cgroup map[v1.ResourceName]*cm.ResourceConfig
}

func (f fakeCgroups) GetPodCgroupConfig(_ *v1.Pod, name v1.ResourceName) (*cm.ResourceConfig, error) {
	if f.cgroup[name] == nil {
		return nil, context.DeadlineExceeded
	}
	return f.cgroup[name], nil
}

type fakeRuntime struct{ kubecontainer.Runtime }

func (fakeRuntime) GetImageRef(_ context.Context, image kubecontainer.ImageSpec) (string, error) {
	return image.Image + "@sha256:0123", nil
}
