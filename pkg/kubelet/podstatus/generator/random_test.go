package generator_test

import (
	"errors"
	"fmt"
	"net"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// drawer draws random parts of a scenario.
type drawer struct{ *rapid.T }

func (d drawer) yes(what string) bool { return rapid.Bool().Draw(d.T, what) }

func (d drawer) upTo(n int, what string) int { return rapid.IntRange(0, n).Draw(d.T, what) }

func pick[T any](d drawer, what string, from ...T) T { return rapid.SampledFrom(from).Draw(d.T, what) }

func (d drawer) scenario() scenario {
	pod := d.pod()
	s := scenario{
		pod:          pod,
		runtime:      d.runtime(pod),
		terminal:     d.yes("terminal"),
		startResults: d.startResults(pod),
		nodeIPs:      pick(d, "nodeIPs", nil, []net.IP{net.ParseIP("10.0.0.1")}, []net.IP{net.ParseIP("fd00::1")}),
		handlers:     pick(d, "handlers", nil, []kubecontainer.RuntimeHandler{{SupportsRecursiveReadOnlyMounts: true}}),
		cgroup:       d.cgroup(),
	}
	if d.yes("previous") {
		previous := d.podStatus(pod)
		s.previous = &previous
	}
	if d.yes("evict") && d.yes("evict2") {
		s.evict = &lifecycle.ShouldEvictResponse{Evict: d.yes("evicts"), Reason: "DeadlineExceeded", Message: "too long"}
	}
	s.node = pick(d, "node", nil, node("10.0.0.1"), node("fd00::1"), node("10.0.0.1", "fd00::1"),
		node("fd00::1", "10.0.0.1"))
	if d.yes("resizing") {
		s.resizeConditions = []*v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, ObservedGeneration: 2}}
	}
	return s
}

func (d drawer) pod() *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: "uid", Name: "pod", Namespace: "ns", Generation: 3, Annotations: map[string]string{},
		},
		Spec: v1.PodSpec{
			RestartPolicy:  pick(d, "policy", v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever),
			HostNetwork:    d.yes("hostNetwork"),
			ReadinessGates: pick(d, "gates", nil, []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}),
			Volumes: []v1.Volume{
				{Name: "image", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "img"}}},
				{Name: "data"},
			},
		},
	}
	if d.yes("static") {
		pod.Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.FileSource
	}
	if d.yes("deleted") {
		pod.DeletionTimestamp = &metav1.Time{Time: epoch}
	}
	for i := range d.upTo(2, "inits") {
		c := d.container(fmt.Sprintf("init%d", i))
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			c.RestartPolicyRules = nil
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range 1 + d.upTo(2, "regulars") {
		pod.Spec.Containers = append([]v1.Container{d.container(fmt.Sprintf("c%d", i))}, pod.Spec.Containers...)
	}
	for i := range d.upTo(1, "ephemerals") {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: fmt.Sprintf("debug%d", i), Image: "debug"},
		})
	}
	if d.yes("podResources") {
		r := d.resources()
		pod.Spec.Resources = &r
	}
	if d.yes("podStatus") {
		pod.Status = d.podStatus(pod)
	}
	return pod
}

func (d drawer) container(name string) v1.Container {
	c := v1.Container{Name: name, Image: "image-of-" + name, Resources: d.resources()}
	if d.yes("ownPolicy") {
		c.RestartPolicy = ptr.To(pick(d, "containerPolicy",
			v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever))
		for range d.upTo(2, "rules") {
			c.RestartPolicyRules = append(c.RestartPolicyRules, v1.ContainerRestartRule{
				Action: pick(d, "action", v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers),
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
					Operator: pick(d, "operator", v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn),
					Values:   []int32{pick[int32](d, "code", 0, 1, 42)},
				},
			})
		}
	}
	for _, volume := range []string{"image", "data"} {
		if d.yes("mount") {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{
				Name: volume, MountPath: "/" + volume, ReadOnly: d.yes("ro"),
				RecursiveReadOnly: pick(d, "rro", nil, ptr.To(v1.RecursiveReadOnlyDisabled), ptr.To(v1.RecursiveReadOnlyIfPossible),
					ptr.To(v1.RecursiveReadOnlyEnabled), ptr.To(v1.RecursiveReadOnlyMode("odd"))),
				MountPropagation: pick(d, "propagation", nil, ptr.To(v1.MountPropagationNone),
					ptr.To(v1.MountPropagationBidirectional)),
			})
		}
	}
	return c
}

func (d drawer) resources() v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: d.resourceList(), Limits: d.resourceList()}
}

func (d drawer) resourceList() v1.ResourceList {
	list := pick(d, "list", nil, v1.ResourceList{})
	if list == nil {
		return nil
	}
	if q := d.cpu(); q != nil {
		list[v1.ResourceCPU] = *q
	}
	if q := d.memory(); q != nil {
		list[v1.ResourceMemory] = *q
	}
	return list
}

func (d drawer) cpu() *resource.Quantity {
	return d.quantity("cpu", "0", "1m", "2m", "3m", "10m", "11m", "1")
}

func (d drawer) memory() *resource.Quantity { return d.quantity("memory", "0", "1", "32Mi", "64Mi") }

func (d drawer) quantity(what string, from ...string) *resource.Quantity {
	if !d.yes("has-" + what) {
		return nil
	}
	return ptr.To(resource.MustParse(pick(d, what, from...)))
}

// runtime draws up to three containers of each name, the newest first as in the list of the runtime, or in any order.
func (d drawer) runtime(pod *v1.Pod) *kubecontainer.PodStatus {
	status := &kubecontainer.PodStatus{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
	status.IPs = pick(d, "ips", nil, []string{"10.1.0.1"}, []string{"fd01::1", "10.1.0.1"},
		[]string{"010.1.0.1", "odd", "fd01::1"})
	age := 0
	for _, name := range append(containerNames(pod), "unknown-container") {
		for range d.upTo(3, "records") {
			age++
			r := d.record(name, age)
			status.ContainerStatuses = append(status.ContainerStatuses, r)
			if d.yes("active") {
				status.ActiveContainerStatuses = append(status.ActiveContainerStatuses, r)
			}
		}
	}
	seen := map[string]bool{}
	for _, r := range status.ContainerStatuses {
		if seen[r.Name] {
			// Stock reports the image of an older container.
			r.Mounts = nil
		}
		seen[r.Name] = true
	}
	for i := range d.upTo(2, "sandboxes") {
		status.SandboxStatuses = append(status.SandboxStatuses, &runtimeapi.PodSandboxStatus{
			Id:       fmt.Sprint(i),
			State:    pick(d, "sandbox", runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY),
			Metadata: &runtimeapi.PodSandboxMetadata{},
			Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: "10.1.0.1"},
			Linux: &runtimeapi.LinuxPodSandboxStatus{
				Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{}},
			},
		})
	}
	return status
}

func (d drawer) record(name string, age int) *kubecontainer.Status {
	r := &kubecontainer.Status{
		ID:   kubecontainer.ContainerID{Type: "test", ID: fmt.Sprintf("%s-%d", name, d.upTo(1, "id"))},
		Name: name,
		State: pick(d, "state", kubecontainer.ContainerStateCreated, kubecontainer.ContainerStateRunning,
			kubecontainer.ContainerStateExited, kubecontainer.ContainerStateExited, kubecontainer.ContainerStateUnknown),
		CreatedAt: epoch.Add(-time.Duration(age) * time.Minute), StartedAt: epoch, FinishedAt: epoch,
		ExitCode: pick(d, "exit", 0, 1, 42), Image: "img", ImageRef: "img@sha", Reason: "Error", Message: "said",
		RestartCount: d.upTo(3, "restarts"),
		StopSignal:   pick(d, "signal", nil, ptr.To(v1.SIGTERM)),
		Mounts: []kubecontainer.Mount{
			{Name: "data"}, {Name: "image", Image: &runtimeapi.ImageSpec{Image: pick(d, "img", "", "img")}},
		},
	}
	if d.yes("user") {
		r.User = &kubecontainer.ContainerUser{
			Linux: &kubecontainer.LinuxContainerUser{UID: 7, SupplementalGroups: []int64{1}},
		}
	}
	if d.yes("resources") {
		r.Resources = &kubecontainer.ContainerResources{
			CPURequest: d.cpu(), CPULimit: d.cpu(), MemoryRequest: d.memory(), MemoryLimit: d.memory(),
		}
	}
	return r
}

func (d drawer) podStatus(pod *v1.Pod) v1.PodStatus {
	s := v1.PodStatus{
		Phase:  pick(d, "phase", "", v1.PodPending, v1.PodRunning, v1.PodRunning, v1.PodSucceeded, v1.PodFailed),
		Reason: pick(d, "reason", "", "Why", "Terminated", "Preempting"), Message: pick(d, "message", "", "because"),
	}
	for _, t := range []v1.PodConditionType{v1.DisruptionTarget, v1.PodReady, v1.PodInitialized, "example.com/gate",
		v1.PodResizePending, v1.AllContainersRestarting, v1.PodReadyToStartContainers} {
		if d.yes("condition") {
			s.Conditions = append(s.Conditions, v1.PodCondition{
				Type: t, Status: pick(d, "conditionStatus", v1.ConditionTrue, v1.ConditionFalse),
				ObservedGeneration: int64(d.upTo(1, "observed")),
			})
		}
	}
	if d.yes("statusResources") {
		r := d.resources()
		s.Resources = &r
	}
	s.InitContainerStatuses = d.containerStatuses(pod.Spec.InitContainers)
	s.ContainerStatuses = d.containerStatuses(pod.Spec.Containers)
	return s
}

func (d drawer) containerStatuses(containers []v1.Container) []v1.ContainerStatus {
	var statuses []v1.ContainerStatus
	for i := range containers {
		if !d.yes("known") {
			continue
		}
		name := containers[i].Name
		r := d.resources()
		statuses = append(statuses, v1.ContainerStatus{
			Name: name, Image: "old", ContainerID: fmt.Sprintf("test://%s-%d", name, d.upTo(1, "oldID")),
			RestartCount: int32(d.upTo(3, "oldRestarts")), State: d.state(), LastTerminationState: d.state(),
			Started: pick(d, "started", nil, ptr.To(true), ptr.To(false)), Resources: pick(d, "oldResources", nil, &r),
			VolumeMounts: []v1.VolumeMountStatus{{Name: "image", MountPath: "/image"}, {Name: "data", MountPath: "/data"}},
		})
	}
	return statuses
}

func (d drawer) state() v1.ContainerState {
	switch d.upTo(3, "oldState") {
	case 0:
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	case 1:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	case 2:
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: pick[int32](d, "oldExit", 0, 1, 42),
			Reason:   pick(d, "oldReason", "Error", podstatus.RestartingAllContainers),
		}}
	default:
		return v1.ContainerState{}
	}
}

func (d drawer) startResults(pod *v1.Pod) kubecontainer.PodSyncResult {
	var result kubecontainer.PodSyncResult
	for _, name := range containerNames(pod) {
		if d.yes("startError") {
			r := kubecontainer.NewSyncResult(kubecontainer.StartContainer, name)
			r.Fail(errors.New("ErrImagePull"), "no such image")
			result.AddSyncResult(r)
		}
	}
	return result
}

func (d drawer) cgroup() map[v1.ResourceName]*cm.ResourceConfig {
	configs := map[v1.ResourceName]*cm.ResourceConfig{}
	if d.yes("cgroupMemory") {
		configs[v1.ResourceMemory] = &cm.ResourceConfig{Memory: ptr.To(pick[int64](d, "memoryMax", -1, 0, 1<<26))}
	}
	if d.yes("cgroupCPU") {
		configs[v1.ResourceCPU] = &cm.ResourceConfig{
			CPUShares: ptr.To(pick[uint64](d, "shares", 0, 2, 3, 1024)),
			CPUPeriod: ptr.To(pick[uint64](d, "period", 0, 100000)),
			CPUQuota:  ptr.To(pick[int64](d, "quota", -1, 1000, 50000)),
		}
	}
	return configs
}

func containerNames(pod *v1.Pod) []string {
	var names []string
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}
