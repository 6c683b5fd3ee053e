package podstatus_test

import (
	"errors"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

// TestCrashLoop follows one container through a failed pull, a crash, the back-off and the restart.
func TestCrashLoop(t *testing.T) {
	n := newSequence(t, pod(container("a")))
	expectWaiting(t, n.next(runtime()).ContainerStatuses[0], podstatus.ContainerCreating, 0)

	n.failures["a"] = &podstatus.Reason{Err: errors.New("ErrImagePull"), Message: "no such image"}
	s := n.next(runtime())
	expectWaiting(t, s.ContainerStatuses[0], "ErrImagePull", 0)
	if s.ContainerStatuses[0].State.Waiting.Message != "no such image" {
		t.Errorf("message is lost: %+v", s.ContainerStatuses[0].State.Waiting)
	}
	delete(n.failures, "a")
	n.next(runtime(running("a")))

	n.failures["a"] = &podstatus.Reason{Err: errors.New("CrashLoopBackOff")}
	s = n.next(runtime(exited("a", 1)))
	expectWaiting(t, s.ContainerStatuses[0], "CrashLoopBackOff", 0)
	expectPhase(t, s, v1.PodRunning)
	if last := s.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 1 {
		t.Errorf("last termination is %+v", last)
	}

	delete(n.failures, "a")
	s = n.next(runtime(nth(1, running("a")), exited("a", 1)))
	got := s.ContainerStatuses[0]
	if got.RestartCount != 1 || got.State.Running == nil || got.LastTerminationState.Terminated == nil ||
		got.ContainerID != "test://a-1" {
		t.Errorf("after the restart: %+v", got)
	}
	expectCondition(t, s, v1.PodReady, v1.ConditionTrue)
}

// TestInitAndSidecar follows a pod with an init container and a sidecar until both have completed.
func TestInitAndSidecar(t *testing.T) {
	p := pod(container("main"))
	p.Spec.InitContainers = []v1.Container{container("z-init"), sidecar("a-side")}
	n := newSequence(t, p)

	s := n.next(runtime(running("z-init")))
	expectPhase(t, s, v1.PodPending)
	expectWaiting(t, s.ContainerStatuses[0], podstatus.PodInitializing, 0)
	expectCondition(t, s, v1.PodInitialized, v1.ConditionFalse)
	if s.InitContainerStatuses[0].Name != "z-init" || s.InitContainerStatuses[1].Name != "a-side" {
		t.Errorf("init containers are not in the order of the specification: %+v", s.InitContainerStatuses)
	}

	s = n.next(runtime(running("a-side"), exited("z-init", 0)))
	expectPhase(t, s, v1.PodPending)
	expectCondition(t, s, v1.PodInitialized, v1.ConditionTrue)

	s = n.next(runtime(running("main"), running("a-side"), exited("z-init", 0)))
	expectPhase(t, s, v1.PodRunning)
	expectCondition(t, s, v1.PodReady, v1.ConditionTrue)

	// The sidecar restarts: not ready, but still running.
	s = n.next(runtime(running("main"), exited("a-side", 1), exited("z-init", 0)))
	expectPhase(t, s, v1.PodRunning)
	expectCondition(t, s, v1.ContainersReady, v1.ConditionFalse)

	// The init container was removed from the runtime: its status stays completed.
	s = n.next(runtime(running("main"), running("a-side")))
	if end := s.InitContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 0 {
		t.Errorf("the init container is %+v", s.InitContainerStatuses[0].State)
	}
}

// TestInitContainerRemovedBeforeRestartOfTheAgent: the init container of a static pod must have completed if a regular
// container runs, although the runtime does not list it and no earlier status is available after the restart.
func TestInitContainerRemovedBeforeRestartOfTheAgent(t *testing.T) {
	p := pod(container("main"))
	p.Spec.InitContainers = []v1.Container{container("init"), sidecar("side")}
	s := newSequence(t, p).next(runtime(running("main")))
	if end := s.InitContainerStatuses[0].State.Terminated; end == nil || end.Reason != "Completed" {
		t.Errorf("the init container is %+v", s.InitContainerStatuses[0].State)
	}
	expectWaiting(t, s.InitContainerStatuses[1], podstatus.PodInitializing, 0)
}

// TestRunningContainerDisappears: the runtime does not list a container any more that was running.
func TestRunningContainerDisappears(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		n := newSequence(t, pod(container("a"), container("b")))
		n.next(runtime(running("a"), running("b")))
		restarts := int32(1)
		if deleted {
			n.in.Pod.DeletionTimestamp = &metav1.Time{Time: start}
			restarts = 0
		}
		for range 2 {
			s := n.next(runtime(running("b")))
			expectPhase(t, s, v1.PodRunning)
			expectWaiting(t, s.ContainerStatuses[0], podstatus.ContainerCreating, restarts)
			if last := s.ContainerStatuses[0].LastTerminationState.Terminated; last == nil ||
				last.Reason != "ContainerStatusUnknown" || last.ExitCode != 137 {
				t.Errorf("last termination is %+v", last)
			}
		}
	}
}

// TestRunningContainerGetsUnknownState: its status must not be that of a container that has never run.
func TestRunningContainerGetsUnknownState(t *testing.T) {
	p := pod(container("a"))
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	n := newSequence(t, p)
	n.next(runtime(running("a")))
	unknown := running("a")
	unknown.State = kubecontainer.ContainerStateUnknown
	s := n.next(runtime(unknown))
	expectPhase(t, s, v1.PodFailed)
	if end := s.ContainerStatuses[0].State.Terminated; end == nil || end.Reason != "ContainerStatusUnknown" {
		t.Errorf("the state is %+v", s.ContainerStatuses[0].State)
	}
}

// TestRestartAllContainers follows a pod whose containers are all restarted because of the exit code of one (KEP-5532).
func TestRestartAllContainers(t *testing.T) {
	trigger := container("a")
	never := v1.ContainerRestartPolicyNever
	trigger.RestartPolicy = &never
	trigger.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	p := pod(trigger, container("b"))
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	n := newSequence(t, p)
	expectCondition(t, n.next(runtime(running("a"), running("b"))), v1.AllContainersRestarting, v1.ConditionFalse)

	s := n.next(runtime(exited("a", 42), running("b")))
	expectPhase(t, s, v1.PodRunning)
	expectCondition(t, s, v1.AllContainersRestarting, v1.ConditionTrue)

	s = n.next(runtime())
	expectPhase(t, s, v1.PodRunning)
	for _, c := range s.ContainerStatuses {
		expectWaiting(t, c, podstatus.RestartingAllContainers, 1)
	}
	expectCondition(t, s, v1.AllContainersRestarting, v1.ConditionFalse)
	expectCondition(t, s, v1.PodInitialized, v1.ConditionTrue)

	s = n.next(runtime(running("a"), running("b")))
	expectPhase(t, s, v1.PodRunning)
	for _, c := range s.ContainerStatuses {
		if c.RestartCount != 1 || c.State.Running == nil {
			t.Errorf("after the restart: %+v", c)
		}
	}
}

func TestConditionsOfOtherOwnersArePreserved(t *testing.T) {
	n := newSequence(t, pod(container("a")))
	n.in.Pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	n.in.Pod.Status.Conditions = []v1.PodCondition{
		{Type: "example.com/gate", Status: v1.ConditionFalse},
		{Type: v1.PodReady, Status: v1.ConditionTrue},
	}
	n.in.Previous.Conditions = []v1.PodCondition{
		{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"},
	}
	s := n.next(runtime(running("a")))
	expectCondition(t, s, "example.com/gate", v1.ConditionFalse)
	expectCondition(t, s, v1.DisruptionTarget, v1.ConditionTrue)
	expectCondition(t, s, v1.ContainersReady, v1.ConditionTrue)
	expectCondition(t, s, v1.PodReady, v1.ConditionFalse)
}

// On cgroup v1 the runtime reports all containers of a fenced pod as OOM-killed. The kernel log names one of them.
func TestContainersThatTheOOMKillerHasSpared(t *testing.T) {
	reasons := func(spared func(string) bool) map[string]string {
		got := map[string]string{}
		hog, killed, done, failed := exited("hog", 137), exited("killed", 137), exited("done", 0), exited("failed", 1)
		for _, s := range []*kubecontainer.Status{hog, killed, done} {
			s.Reason = "OOMKilled"
		}
		failed.Reason = "Failed"
		status, _ := podstatus.Generate(podstatus.Input{
			Pod:     pod(container("hog"), container("killed"), container("done"), container("failed")),
			Runtime: runtime(hog, killed, done, failed), Lookups: podstatus.Lookups{SparedByOOM: spared},
		})
		for _, s := range status.ContainerStatuses {
			got[s.Name] = s.State.Terminated.Reason
		}
		return got
	}
	want := map[string]string{"hog": "OOMKilled", "killed": "OOMKilled", "done": "OOMKilled", "failed": "Failed"}
	if got := reasons(nil); !maps.Equal(got, want) {
		t.Errorf("by the runtime %v, want %v", got, want)
	}
	want["killed"], want["done"] = "Error", "Completed"
	if got := reasons(func(container string) bool { return container != id("hog", 0).ID }); !maps.Equal(got, want) {
		t.Errorf("by the kernel log %v, want %v", got, want)
	}
	want["killed"], want["done"] = "OOMKilled", "OOMKilled"
	if got := reasons(func(string) bool { return true }); !maps.Equal(got, want) {
		t.Errorf("by a kernel log that names no container %v, want %v", got, want)
	}
}

// The containers of an evicted pod are removed one after the other: that changes nothing about those that are left.
func TestSparedContainersAfterTheKilledOneIsRemoved(t *testing.T) {
	hog, killed, done := exited("hog", 137), exited("killed", 137), exited("done", 0)
	for _, s := range []*kubecontainer.Status{hog, killed, done} {
		s.Reason = "OOMKilled"
	}
	n := newSequence(t, pod(container("hog"), container("killed"), container("done")))
	n.in.Lookups.SparedByOOM = func(container string) bool { return container != id("hog", 0).ID }
	for _, records := range [][]*kubecontainer.Status{{hog, killed, done}, {killed, done}, {killed, done}} {
		got := map[string]string{}
		for _, s := range n.next(runtime(records...)).ContainerStatuses {
			if s.Name != "hog" && s.State.Terminated != nil {
				got[s.Name] = s.State.Terminated.Reason
			}
		}
		if want := map[string]string{"killed": "Error", "done": "Completed"}; !maps.Equal(got, want) {
			t.Errorf("with %d containers: %v, want %v", len(records), got, want)
		}
	}
}

// A container that was OOM-killed at its own limit remains OOMKilled, also after it was started again, whatever the
// kernel log still has when the pod is fenced later.
func TestOOMKilledBeforeTheFence(t *testing.T) {
	killed := func(n int) *kubecontainer.Status {
		s := nth(n, exited("a", 137))
		s.Reason = "OOMKilled"
		return s
	}
	n := newSequence(t, pod(container("a"), container("b")))
	hog := exited("b", 137)
	spared := false
	n.in.Lookups.SparedByOOM = func(container string) bool { return spared && container != id("b", 0).ID }
	n.next(runtime(killed(0), hog))
	spared = true
	s := n.next(runtime(killed(0), hog)).ContainerStatuses[0]
	if s.State.Terminated == nil || s.State.Terminated.Reason != "OOMKilled" {
		t.Errorf("%+v", s.State)
	}
	s = n.next(runtime(killed(1), killed(0), hog)).ContainerStatuses[0]
	if s.State.Terminated == nil || s.State.Terminated.Reason != "Error" {
		t.Errorf("the next one: %+v", s.State)
	}
	if was := s.LastTerminationState.Terminated; was == nil || was.Reason != "OOMKilled" {
		t.Errorf("the one before: %+v", s.LastTerminationState)
	}
}
