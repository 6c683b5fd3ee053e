package podstatus_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// allFeatures are the gates that are on by default in v1.36.
var allFeatures = podstatus.Features{
	ContainerRestartRules:                   true,
	RestartAllContainersOnContainerExits:    true,
	InPlacePodLevelResourcesVerticalScaling: true,
	PodLevelResources:                       true,
	PodReadyToStartContainersCondition:      true,
}

// pod returns a pod with the given containers and restart policy Always.
func pod(containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "uid", Name: "pod", Namespace: "ns", Generation: 1},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: containers},
	}
}

func container(name string) v1.Container { return v1.Container{Name: name, Image: "image"} }

func sidecar(name string) v1.Container {
	always := v1.ContainerRestartPolicyAlways
	return v1.Container{Name: name, Image: "image", RestartPolicy: &always}
}

// runtime lists containers, all of which belong to the current sandbox.
func runtime(records ...*kubecontainer.Status) *kubecontainer.PodStatus {
	return &kubecontainer.PodStatus{ContainerStatuses: records, ActiveContainerStatuses: records}
}

func running(name string) *kubecontainer.Status {
	return &kubecontainer.Status{
		ID: id(name, 0), Name: name, State: kubecontainer.ContainerStateRunning, CreatedAt: start, StartedAt: start,
		Image: "image",
	}
}

func exited(name string, code int) *kubecontainer.Status {
	s := running(name)
	s.State, s.ExitCode, s.FinishedAt = kubecontainer.ContainerStateExited, code, start.Add(time.Second)
	s.Reason = "Completed"
	if code != 0 {
		s.Reason = "Error"
	}
	return s
}

// nth makes s the container after n restarts.
func nth(n int, s *kubecontainer.Status) *kubecontainer.Status {
	s.ID, s.RestartCount = id(s.Name, n), n
	s.CreatedAt = start.Add(time.Duration(n) * time.Minute)
	return s
}

func id(name string, n int) kubecontainer.ContainerID {
	return kubecontainer.ContainerID{Type: "test", ID: name + "-" + string(rune('0'+n))}
}

// statusSequence computes successive statuses of a pod: each is the previous one of the next.
type statusSequence struct {
	t        *testing.T
	in       podstatus.Input
	failures map[string]*podstatus.Reason
}

func newSequence(t *testing.T, p *v1.Pod) *statusSequence {
	n := &statusSequence{t: t, failures: map[string]*podstatus.Reason{}}
	n.in = podstatus.Input{Pod: p, Features: allFeatures, Lookups: podstatus.Lookups{
		StartError: func(name string) (*podstatus.Reason, bool) { r, ok := n.failures[name]; return r, ok },
		Probes:     markRunningReady,
	}}
	return n
}

// next computes the next status from the given state of the runtime.
func (n *statusSequence) next(r *kubecontainer.PodStatus) v1.PodStatus {
	n.t.Helper()
	n.in.Runtime = r
	status, notes := podstatus.Generate(n.in)
	for _, note := range notes {
		if note.Problem {
			n.t.Errorf("problem: %+v", note)
		}
	}
	n.in.Previous = status
	return status
}

func markRunningReady(s *v1.PodStatus) {
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			isRunning := list[i].State.Running != nil
			done := list[i].State.Terminated != nil && list[i].State.Terminated.ExitCode == 0
			list[i].Started, list[i].Ready = &isRunning, isRunning || done
		}
	}
}

func conditionStatus(s v1.PodStatus, t v1.PodConditionType) v1.ConditionStatus {
	for _, c := range s.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	return ""
}

func expectPhase(t *testing.T, s v1.PodStatus, phase v1.PodPhase) {
	t.Helper()
	if s.Phase != phase {
		t.Errorf("phase is %q, want %q", s.Phase, phase)
	}
}

func expectCondition(t *testing.T, s v1.PodStatus, c v1.PodConditionType, want v1.ConditionStatus) {
	t.Helper()
	if got := conditionStatus(s, c); got != want {
		t.Errorf("condition %s is %q, want %q", c, got, want)
	}
}

// expectWaiting checks the waiting reason of a container and its restart count.
func expectWaiting(t *testing.T, s v1.ContainerStatus, reason string, restarts int32) {
	t.Helper()
	if s.State.Waiting == nil || s.State.Waiting.Reason != reason || s.RestartCount != restarts {
		t.Errorf("container %s: %+v after %d restarts, want waiting with reason %q after %d", s.Name, s.State, s.RestartCount,
			reason, restarts)
	}
}
