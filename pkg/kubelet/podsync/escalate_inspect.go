package podsync

import (
	"context"
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

// inspector determines the containers and processes that an overdue pod still has.
type inspector struct {
	observer PodObserver
	cgroups  podCgroups
	// timeout limits the wait for the runtime.
	timeout time.Duration
}

// inspect returns the state of the target. If the runtime answers, it also updates the target's status.
func (i inspector) inspect(ctx context.Context, t *target) escalation.Facts {
	asking, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	status, err := observe(asking, i.observer, t.pod)
	if err == nil {
		t.status = status
	}
	facts := escalation.Facts{Silent: err != nil, Running: runningNames(t.status), OwnKernel: hasOwnKernel(t.pod)}
	facts.Processes, facts.ProcessesErr = i.cgroups.processesOf(*t)
	return facts
}

func runningNames(status *kubecontainer.PodStatus) []string {
	var names []string
	for _, c := range status.ContainerStatuses {
		if c.State == kubecontainer.ContainerStateRunning {
			names = append(names, c.Name)
		}
	}
	return names
}

// hasOwnKernel is true for a pod whose RuntimeClass has an overhead (KEP-688): the runtime runs it in a virtual machine
// or with a kernel in user space.
func hasOwnKernel(pod *v1.Pod) bool { return len(pod.Spec.Overhead) > 0 }

// podCgroups are the cgroups of pods and the processes in them.
type podCgroups struct {
	enabled    bool
	containers ContainerManager
	processes  PodProcesses
}

func newPodCgroups(c Config) podCgroups {
	return podCgroups{enabled: c.CgroupsPerQOS, containers: c.Containers, processes: c.Processes}
}

// The errors when the processes of a pod cannot be listed: pods have no cgroups by the configuration (cgroupsPerQOS),
// or there is none of a pod of which only the container runtime knows.
var (
	errNoPodCgroups = errors.New("pods have no cgroups of their own")
	errNoCgroup     = errors.New("the pod has no cgroup, whatever its QoS class")
)

// processesOf returns the processes in the pod's cgroup, none if it does not exist.
func (c podCgroups) processesOf(t target) ([]escalation.Process, error) {
	path, err := c.path(t)
	if err != nil {
		return nil, err
	}
	processes, err := c.processes.Processes(path)
	for i := range processes {
		processes[i].Container = belongsToContainer(processes[i].Cgroup, t.status)
	}
	return processes, err
}

// kill kills the processes in the pod's cgroup and waits until they have ended, at most cgroupKillTimeout.
func (c podCgroups) kill(ctx context.Context, t target) error {
	path, err := c.path(t)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cgroupKillTimeout)
	defer cancel()
	return c.processes.Kill(ctx, path)
}

func (c podCgroups) path(t target) (string, error) {
	if !c.enabled {
		return "", errNoPodCgroups
	}
	manager := c.containers.NewPodContainerManager()
	if !t.runtimeOnly {
		_, path := manager.GetPodContainerName(t.pod)
		return path, nil
	}
	// The name depends on the QoS class, which depends on the specification.
	for _, class := range []v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed} {
		pod := t.pod.DeepCopy()
		pod.Status.QOSClass = class
		if _, path := manager.GetPodContainerName(pod); manager.Exists(pod) {
			return path, nil
		}
	}
	return "", errNoCgroup
}

// belongsToContainer is true for a cgroup of one of the pod's containers, or below one. Runtimes name it by the
// container's ID, some with a prefix and a suffix ("cri-containerd-<id>.scope").
func belongsToContainer(cgroup string, status *kubecontainer.PodStatus) bool {
	for _, c := range status.ContainerStatuses {
		if c.ID.ID != "" && strings.Contains(cgroup, c.ID.ID) {
			return true
		}
	}
	return false
}
