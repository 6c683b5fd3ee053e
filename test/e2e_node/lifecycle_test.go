//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// waitingFor is a check for a pod with a container that waits for one of those reasons.
func waitingFor(reasons ...string) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		for _, status := range pod.Status.ContainerStatuses {
			if status.State.Waiting != nil && slices.Contains(reasons, status.State.Waiting.Reason) {
				return nil
			}
		}
		return fmt.Errorf("no container waits for %v: %s", reasons, kit.Describe(pod))
	}
}

func TestInitContainersRunInOrder(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("init", "cat /data/log")
	pod.Spec.InitContainers = []v1.Container{
		kit.Container("first", "sleep 1; echo first >> /data/log"),
		kit.Container("second", "echo second >> /data/log"),
	}
	mountEmptyDir(pod, "/data")
	s.expectLog(s.succeeded(pod), "first\nsecond")
}

func TestFailedInitContainerEndsThePod(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("init", "echo never")
	pod.Spec.InitContainers = []v1.Container{kit.Container("fails", "exit 9")}
	created := s.wait(s.create(pod), podTimeout, ended(v1.PodFailed))
	status, err := container(created, "main")
	s.must(err)
	if status.State.Waiting == nil || status.State.Waiting.Reason != "PodInitializing" {
		t.Errorf("the container must not be started: %s", kit.Describe(created))
	}
}

func TestFailedInitContainerIsRestarted(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("init")
	pod.Spec.InitContainers = []v1.Container{
		kit.Container("second-time", "test -e /data/seen || { touch /data/seen; exit 1; }"),
	}
	mountEmptyDir(pod, "/data")
	created := s.ready(pod)
	status, err := container(created, "second-time")
	s.must(err)
	if status.RestartCount != 1 {
		t.Errorf("the init container was restarted %d times, want 1", status.RestartCount)
	}
}

func TestSidecarStartsFirstAndEndsLast(t *testing.T) {
	s := parallelSpace(t)
	dir := t.TempDir()
	pod := kit.Pod("sidecar", "cat /data/log; echo main ends >> /data/log")
	sidecar := kit.Container("side", "")
	sidecar.Command = []string{"sh", "-c", "trap 'echo side ends >> /data/log; exit 0' TERM; " +
		"echo side runs >> /data/log; touch /tmp/up" + kit.Forever}
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	sidecar.StartupProbe = execProbe("test -e /tmp/up")
	pod.Spec.InitContainers = []v1.Container{sidecar, kit.Container("init", "echo init runs >> /data/log")}
	mount(pod, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}, "/data")
	created := s.succeeded(pod)
	s.expectLog(created, "side runs\ninit runs")
	data, err := os.ReadFile(filepath.Join(dir, "log"))
	s.must(err)
	s.expect("order", strings.TrimSpace(string(data)), "side runs\ninit runs\nmain ends\nside ends")
}

func TestSidecarIsRestarted(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("sidecar")
	sidecar := kit.Container("side", "test -e /data/seen && "+strings.TrimSpace(kit.Forever)+"; touch /data/seen; exit 1")
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers = []v1.Container{sidecar}
	mountEmptyDir(pod, "/data")
	s.wait(s.create(pod), podTimeout, func(pod *v1.Pod) error {
		status, err := container(pod, "side")
		if err == nil && status.RestartCount != 1 {
			err = fmt.Errorf("the sidecar was restarted %d times", status.RestartCount)
		}
		return errors.Join(err, kit.Ready(pod))
	})
}

func TestLifecycleHooks(t *testing.T) {
	s := parallelSpace(t)
	dir := t.TempDir()
	pod := kit.IdlePod("hooks")
	hook := func(word string) *v1.LifecycleHandler {
		return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "echo " + word + " >> /data/log"}}}
	}
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: hook("started"), PreStop: hook("stopping")}
	mount(pod, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}, "/data")
	s.remove(s.ready(pod))
	data, err := os.ReadFile(filepath.Join(dir, "log"))
	s.must(err)
	s.expect("what the hooks wrote", string(data), "started\nstopping\n")
}

func TestRestartPolicies(t *testing.T) {
	s := parallelSpace(t)
	onFailure := kit.Pod("on-failure", "test -e /data/seen || { touch /data/seen; exit 1; }")
	onFailure.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	mountEmptyDir(onFailure, "/data")
	never := s.create(kit.Pod("never", "exit 1"))
	always := kit.Pod("always", "true")
	always.Spec.RestartPolicy = v1.RestartPolicyAlways
	again := s.create(always)

	done := s.succeeded(onFailure)
	s.must(restarted(1)(done))
	failed := s.wait(never, podTimeout, ended(v1.PodFailed))
	if failed.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("a pod with restart policy Never was restarted: %s", kit.Describe(failed))
	}
	s.wait(again, podTimeout, restarted(1))
	// As with stock, the container's status has that reason only if the pod is synchronized before the back-off is over.
	s.eventually(podTimeout, func(ctx context.Context) error {
		return s.hasEvent(ctx, again.Name, "BackOff", "Back-off restarting failed container")
	})
}

func TestGracePeriodIsGivenAndEnds(t *testing.T) {
	s := parallelSpace(t)
	created := s.ready(podThat("stubborn", neverEnds, 4))
	began := time.Now()
	s.remove(created)
	if took := time.Since(began); took < 3*time.Second || took > 60*time.Second {
		t.Errorf("a pod that ignores SIGTERM, with a grace period of 4 s, was gone after %v", took)
	}
}

func TestShorterGracePeriodHastensATermination(t *testing.T) {
	s := parallelSpace(t)
	created := s.ready(podThat("stubborn", neverEnds, 600))
	pods := s.client.CoreV1().Pods(s.name)
	s.must(pods.Delete(s.ctx, created.Name, metav1.DeleteOptions{}))
	s.must(pods.Delete(s.ctx, created.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(2))}))
	s.must(kit.WaitGone(s.ctx, s.client, created, podTimeout))
}

func TestActiveDeadline(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("deadline")
	pod.Spec.ActiveDeadlineSeconds = new(int64(3))
	s.wait(s.create(pod), podTimeout, endedFor("DeadlineExceeded"))
}

func TestEphemeralContainer(t *testing.T) {
	s := parallelSpace(t)
	pod := s.ready(kit.IdlePod("debugged"))
	s.kubectl("debug", pod.Name, "--image=localhost/busybox:1", "--image-pull-policy=IfNotPresent",
		"--container=debugger", "--target=main", "--", "sh", "-c", "echo looking")
	s.wait(pod, podTimeout, func(pod *v1.Pod) error {
		status, err := container(pod, "debugger")
		if err == nil && status.State.Terminated == nil {
			err = errors.New("the debugger has not ended")
		}
		return err
	})
	s.expect("log", s.kubectl("logs", pod.Name, "-c", "debugger"), "looking")
}

func TestResizeInPlace(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("grows")
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: kit.Resources("50m", "64Mi"), Limits: kit.Resources("100m", "64Mi"),
	}
	created := s.ready(pod)
	s.kubectl("patch", "pod", created.Name, "--subresource=resize", "-p",
		`{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"200m","memory":"96Mi"}}}]}}`)
	after := s.wait(created, slowTimeout, func(pod *v1.Pod) error {
		status, err := container(pod, "main")
		if err == nil && (status.Resources == nil || status.Resources.Limits.Memory().String() != "96Mi") {
			err = fmt.Errorf("the container has %v", status.Resources)
		}
		return err
	})
	if count := after.Status.ContainerStatuses[0].RestartCount; count != 0 {
		t.Errorf("the resize restarted the container %d times", count)
	}
}

func TestPodIsCreatedAgainUnderTheSameName(t *testing.T) {
	s := parallelSpace(t)
	for range 3 {
		s.remove(s.ready(kit.IdlePod("again")))
	}
}
