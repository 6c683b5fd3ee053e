//go:build e2e

package e2enode

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// onExit is a rule for containers that exit with that code.
func onExit(code int32, action v1.ContainerRestartRuleAction) []v1.ContainerRestartRule {
	return []v1.ContainerRestartRule{{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
		Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code},
	}}}
}

// TestRestartRuleOfAContainer has a rule that restarts a container when it exits with one code, in a pod with restart
// policy Never. With another code it is not restarted.
func TestRestartRuleOfAContainer(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("pod", "if test -e /data/second; then exit 7; fi; touch /data/second; exit 42")
	mountEmptyDir(pod, "/data")
	main := &pod.Spec.Containers[0]
	main.RestartPolicy = new(v1.ContainerRestartPolicyNever)
	main.RestartPolicyRules = onExit(42, v1.ContainerRestartRuleActionRestart)
	pod = s.wait(s.create(pod), podTimeout, ended(v1.PodFailed))
	status, err := container(pod, "main")
	s.must(err)
	if status.RestartCount != 1 || status.State.Terminated == nil || status.State.Terminated.ExitCode != 7 {
		t.Errorf("the container must be restarted once and exit with code 7: %s", kit.Describe(pod))
	}
}

// TestRestartOfAllContainers has a rule of one container restart all containers of the pod in place, init containers
// included.
func TestRestartOfAllContainers(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("pod", "test $(wc -l < /data/starts) = 2 || exit 42"+kit.Forever)
	init := kit.Container("first", "echo start >> /data/starts")
	pod.Spec.InitContainers = []v1.Container{init}
	pod.Spec.Containers = append(pod.Spec.Containers, kit.Container("second", kit.Forever))
	mountEmptyDir(pod, "/data")
	main := &pod.Spec.Containers[0]
	main.RestartPolicy = new(v1.ContainerRestartPolicyNever)
	main.RestartPolicyRules = onExit(42, v1.ContainerRestartRuleActionRestartAllContainers)
	pod = s.wait(s.wait(s.create(pod), podTimeout, restarted(1)), podTimeout, kit.Ready)
	for _, name := range []string{"first", "main", "second"} {
		status, err := container(pod, name)
		s.must(err)
		if status.RestartCount != 1 {
			t.Errorf("container %s was restarted %d times, want once: %s", name, status.RestartCount, kit.Describe(pod))
		}
	}
}
