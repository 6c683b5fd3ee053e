//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// execProbe is a probe that runs script every second.
func execProbe(script string) *v1.Probe {
	return probe(v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", script}}})
}

func probe(handler v1.ProbeHandler) *v1.Probe {
	return &v1.Probe{ProbeHandler: handler, PeriodSeconds: 1, FailureThreshold: 2, TimeoutSeconds: 5}
}

func TestReadinessFollowsTheProbe(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("readiness")
	pod.Spec.Containers[0].ReadinessProbe = execProbe("test -e /tmp/ready")
	created := s.wait(s.create(pod), podTimeout, ended(v1.PodRunning))
	if kit.Ready(created) == nil {
		t.Fatal("the pod is Ready before its probe succeeded")
	}
	s.sh(created, "touch /tmp/ready")
	s.wait(created, podTimeout, kit.Ready)
	s.sh(created, "rm /tmp/ready")
	after := s.wait(created, podTimeout, func(pod *v1.Pod) error {
		if kit.Ready(pod) == nil {
			return errors.New("still Ready")
		}
		return nil
	})
	if count := after.Status.ContainerStatuses[0].RestartCount; count != 0 {
		t.Errorf("a readiness probe caused %d restarts", count)
	}
}

func TestLivenessRestartsTheContainer(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePodThat("liveness", "touch /tmp/alive")
	pod.Spec.Containers[0].LivenessProbe = execProbe("test -e /tmp/alive")
	created := s.ready(pod)
	s.sh(created, "rm /tmp/alive")
	s.wait(created, podTimeout, restarted(1))
	s.eventually(podTimeout, func(ctx context.Context) error {
		return s.hasEvent(ctx, "liveness", "Unhealthy", "Liveness probe failed")
	})
}

func TestStartupProbeDelaysOtherProbes(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePodThat("startup", "sleep 8; touch /tmp/started")
	pod.Spec.Containers[0].StartupProbe = execProbe("test -e /tmp/started")
	pod.Spec.Containers[0].StartupProbe.FailureThreshold = 60
	// Without the startup probe this would restart the container at once.
	pod.Spec.Containers[0].LivenessProbe = execProbe("test -e /tmp/started")
	created := s.ready(pod)
	status := created.Status.ContainerStatuses[0]
	if status.RestartCount != 0 || status.Started == nil || !*status.Started {
		t.Errorf("after the startup probe: %s", kit.Describe(created))
	}
}

func TestNetworkProbes(t *testing.T) {
	handlers := map[string]v1.ProbeHandler{
		"http": {HTTPGet: &v1.HTTPGetAction{Path: "/index.html", Port: intstr.FromString("web")}},
		"tcp":  {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(8080)}},
	}
	s := parallelSpace(t)
	for name, handler := range handlers {
		pod := kit.IdlePodThat(name, "echo ok > /tmp/index.html; httpd -p 8080 -h /tmp")
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "web", ContainerPort: 8080}}
		pod.Spec.Containers[0].ReadinessProbe = probe(handler)
		created := s.ready(pod)
		s.must(bodyIs(s.ctx, fmt.Sprintf("http://%s:8080/", created.Status.PodIP), "ok\n"))
	}
}

func TestReadinessGate(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("gated")
	pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/balanced"}}
	created := s.wait(s.create(pod), podTimeout, func(pod *v1.Pod) error {
		if kit.ConditionStatus(pod, v1.ContainersReady) != v1.ConditionTrue {
			return errors.New("containers are not ready: " + kit.Describe(pod))
		}
		return nil
	})
	if kit.Ready(created) == nil {
		t.Fatal("the pod is Ready although its gate is closed")
	}
	s.kubectl("patch", "pod", created.Name, "--subresource=status", "--type=strategic",
		"-p", `{"status":{"conditions":[{"type":"example.com/balanced","status":"True"}]}}`)
	s.wait(created, podTimeout, kit.Ready)
}
