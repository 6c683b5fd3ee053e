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

// looker finds out what is there of an overdue pod.
type looker struct {
	observer PodObserver
	cgroups  podCgroups
	// timeout bounds how long the runtime is waited for.
	timeout time.Duration
}

// at looks. What the runtime says becomes the status of the target.
func (l looker) at(ctx context.Context, t *target) escalation.Facts {
	asking, done := context.WithTimeout(ctx, l.timeout)
	defer done()
	status, err := observe(asking, l.observer, t.pod)
	if err == nil {
		t.status = status
	}
	facts := escalation.Facts{Silent: err != nil, Running: runningNames(t.status), OwnKernel: ownKernel(t.pod)}
	facts.Processes, facts.NoCgroup = l.cgroups.list(*t)
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

// ownKernel is true for a pod whose RuntimeClass charges it for more than its containers (KEP-688): what the runtime runs it in, a virtual
// machine or a kernel in user space.
func ownKernel(pod *v1.Pod) bool { return len(pod.Spec.Overhead) > 0 }

// podCgroups are the cgroups of pods and the processes in them.
type podCgroups struct {
	enabled    bool
	containers ContainerManager
	processes  PodProcesses
}

func newPodCgroups(c Config) podCgroups {
	return podCgroups{enabled: c.CgroupsPerQOS, containers: c.Containers, processes: c.Processes}
}

// errNoPodCgroups is why nothing is known about the processes of pods.
var errNoPodCgroups = errors.New("pods have no cgroups of their own")

// list returns the processes in the pod's cgroup, none if it does not exist.
func (c podCgroups) list(t target) ([]escalation.Process, error) {
	path, err := c.path(t)
	if err != nil {
		return nil, err
	}
	processes, err := c.processes.Processes(path)
	for i := range processes {
		processes[i].Container = ofContainer(processes[i].Cgroup, t.status)
	}
	return processes, err
}

// kill kills them and waits until they are gone, or for cgroupKillTimeout.
func (c podCgroups) kill(ctx context.Context, t target) error {
	path, err := c.path(t)
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeout(ctx, cgroupKillTimeout)
	defer done()
	return c.processes.Kill(ctx, path)
}

func (c podCgroups) path(t target) (string, error) {
	if !c.enabled || c.processes == nil {
		return "", errNoPodCgroups
	}
	manager := c.containers.NewPodContainerManager()
	if !t.orphan {
		_, path := manager.GetPodContainerName(t.pod)
		return path, nil
	}
	// The name depends on the QoS class, and that on the specification.
	for _, class := range []v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed} {
		pod := t.pod.DeepCopy()
		pod.Status.QOSClass = class
		if _, path := manager.GetPodContainerName(pod); manager.Exists(pod) {
			return path, nil
		}
	}
	return "", errNoPodCgroups
}

// ofContainer is true for a cgroup of one of the pod's containers, or below one. Runtimes name it by the container's ID, some with a prefix and
// a suffix ("cri-containerd-<id>.scope").
func ofContainer(cgroup string, status *kubecontainer.PodStatus) bool {
	for _, c := range status.ContainerStatuses {
		if c.ID.ID != "" && strings.Contains(cgroup, c.ID.ID) {
			return true
		}
	}
	return false
}
