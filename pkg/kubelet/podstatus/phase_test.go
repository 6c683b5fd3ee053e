package podstatus_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

func TestPhase(t *testing.T) {
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	for _, tt := range []struct {
		name     string
		policy   v1.RestartPolicy
		init     []v1.Container
		records  []*kubecontainer.Status
		terminal bool
		static   bool
		want     v1.PodPhase
	}{
		{name: "nothing yet", policy: always, want: v1.PodPending},
		{name: "one of two", policy: always, records: []*kubecontainer.Status{running("a")}, want: v1.PodPending},
		{name: "both run", policy: always, records: both(running("a"), running("b")), want: v1.PodRunning},
		{name: "one ended", policy: never, records: both(running("a"), exited("b", 1)), want: v1.PodRunning},
		{name: "both ended, restart", policy: always, records: both(exited("a", 0), exited("b", 0)), want: v1.PodRunning},
		{name: "both ended well", policy: onFailure, records: both(exited("a", 0), exited("b", 0)), want: v1.PodSucceeded},
		{name: "one failed, restart", policy: onFailure, records: both(exited("a", 0), exited("b", 1)), want: v1.PodRunning},
		{name: "one failed", policy: never, records: both(exited("a", 0), exited("b", 1)), want: v1.PodFailed},
		{
			name: "stopped for good", policy: always, records: both(exited("a", 0), exited("b", 0)), terminal: true,
			want: v1.PodSucceeded,
		},
		{name: "killed", policy: always, records: both(exited("a", 0), exited("b", 137)), terminal: true, want: v1.PodFailed},
		{name: "static pod has no end", policy: always, records: both(exited("a", 0), exited("b", 137)), terminal: true,
			static: true, want: v1.PodRunning},
		{name: "init runs", policy: always, init: []v1.Container{container("i")},
			records: []*kubecontainer.Status{running("i")}, want: v1.PodPending},
		{name: "init failed, again", policy: onFailure, init: []v1.Container{container("i")},
			records: []*kubecontainer.Status{exited("i", 1)}, want: v1.PodPending},
		{name: "init failed", policy: never, init: []v1.Container{container("i")},
			records: []*kubecontainer.Status{exited("i", 1)}, want: v1.PodFailed},
		{name: "sidecar outlives all", policy: never, init: []v1.Container{sidecar("s")},
			records: append(both(exited("a", 0), exited("b", 0)), running("s")), want: v1.PodRunning},
		{name: "sidecar ended badly with the pod", policy: never, init: []v1.Container{sidecar("s")},
			records: append(both(exited("a", 0), exited("b", 0)), exited("s", 137)), want: v1.PodSucceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pod(container("a"), container("b"))
			p.Spec.RestartPolicy, p.Spec.InitContainers = tt.policy, tt.init
			if tt.static {
				p.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
			}
			n := newSequence(t, p)
			n.in.Terminal = tt.terminal
			expectPhase(t, n.next(runtime(tt.records...)), tt.want)
		})
	}
}

func both(a, b *kubecontainer.Status) []*kubecontainer.Status { return []*kubecontainer.Status{a, b} }

func TestTerminalPhaseIsFinal(t *testing.T) {
	for _, shownByAPI := range []bool{false, true} {
		n := newSequence(t, pod(container("a")))
		failed := v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "low on memory"}
		if shownByAPI {
			n.in.Pod.Status = failed
		} else {
			n.in.Previous = failed
		}
		s := n.next(runtime(running("a")))
		expectPhase(t, s, v1.PodFailed)
		if !shownByAPI && (s.Reason != "Evicted" || s.Message != "low on memory") {
			t.Errorf("reason %q and message %q are not kept", s.Reason, s.Message)
		}
	}
}

func TestIllegalTransitionIsNoted(t *testing.T) {
	p := pod(container("a"))
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Status.Phase = v1.PodSucceeded
	s, notes := podstatus.Generate(podstatus.Input{Pod: p, Runtime: runtime(exited("a", 1)), Features: allFeatures})
	expectPhase(t, s, v1.PodSucceeded)
	if len(notes) != 1 || !notes[0].Problem || notes[0].Phase != v1.PodFailed {
		t.Errorf("notes are %+v", notes)
	}
}

func TestEvict(t *testing.T) {
	n := newSequence(t, pod(container("a")))
	n.in.Evict = &podstatus.Eviction{Reason: "DeadlineExceeded", Message: "too long"}
	s := n.next(runtime(running("a")))
	expectPhase(t, s, v1.PodFailed)
	expectCondition(t, s, v1.PodReady, v1.ConditionFalse)
	if s.Reason != "DeadlineExceeded" || s.Message != "too long" {
		t.Errorf("reason %q, message %q", s.Reason, s.Message)
	}
}

// TestRestartRule: a restart rule restarts a container after one exit code, although the pod's policy is Never
// (KEP-5307).
func TestRestartRule(t *testing.T) {
	c := container("a")
	never := v1.ContainerRestartPolicyNever
	c.RestartPolicy = &never
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	p := pod(c)
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	for code, want := range map[int]v1.PodPhase{42: v1.PodRunning, 1: v1.PodFailed, 0: v1.PodSucceeded} {
		n := newSequence(t, p)
		n.next(runtime(running("a")))
		expectPhase(t, n.next(runtime(exited("a", code))), want)
	}
}

// TestPhaseWithoutRestartRules: a container that exited with code 0 has disappeared while it was waiting. Without
// restart rules per container a container that waits is one that restarts, with the pod's policy OnFailure too.
func TestPhaseWithoutRestartRules(t *testing.T) {
	for policy, want := range map[v1.RestartPolicy]v1.PodPhase{
		v1.RestartPolicyAlways: v1.PodRunning, v1.RestartPolicyOnFailure: v1.PodRunning, v1.RestartPolicyNever: v1.PodFailed,
	} {
		p := pod(container("a"))
		p.Spec.RestartPolicy = policy
		n := newSequence(t, p)
		n.in.Features = podstatus.Features{}
		n.in.Previous.ContainerStatuses = []v1.ContainerStatus{{
			Name:                 "a",
			State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}},
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}},
		}}
		expectPhase(t, n.next(runtime()), want)
	}
}

// The reason of a pod that waited for admission is removed once the pod is admitted, although it is still Pending while
// its image is pulled. It is not taken from the status at the API server either.
func TestAdmittedPodHasNoWaitingReason(t *testing.T) {
	p := pod(container("a"))
	p.Status = v1.PodStatus{Phase: v1.PodPending, Reason: podstatus.ReasonWaitingForRoom, Message: "There is pressure."}
	n := newSequence(t, p)
	n.in.Previous = p.Status
	for range 2 {
		if got := n.next(runtime()); got.Phase != v1.PodPending || got.Reason != "" || got.Message != "" {
			t.Errorf("phase %s, reason %q, message %q", got.Phase, got.Reason, got.Message)
		}
	}
	n.in.Pod.Status.Reason, n.in.Pod.Status.Message = "Other", "Something else."
	if got := n.next(runtime()); got.Reason != "Other" || got.Message != "Something else." {
		t.Errorf("reason %q, message %q", got.Reason, got.Message)
	}
}
