//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// The groups of pods by priority, and how long each may take to stop. The shutdown is delayed by at most their sum.
const (
	ordinary, important      = int32(0), int32(10_000)
	ordinaryTime, urgentTime = 20, 10 // seconds
	longestShutdown          = (ordinaryTime + urgentTime) * time.Second
	shutdownMessage          = "Pod was terminated in response to imminent node shutdown."
	neverEnds, endsAfter3s   = "trap '' TERM" + kit.Forever, "trap 'sleep 3; exit 0' TERM" + kit.Forever
	endsAtOnce               = "trap 'exit 0' TERM" + kit.Forever
)

func gracefulShutdown(config *kubeletv1beta1.KubeletConfiguration) {
	config.ShutdownGracePeriodByPodPriority = []kubeletv1beta1.ShutdownGracePeriodByPodPriority{
		{Priority: ordinary, ShutdownGracePeriodSeconds: ordinaryTime},
		{Priority: important, ShutdownGracePeriodSeconds: urgentTime},
	}
}

// podThat runs script as process 1, without the signal handlers of other pods.
func podThat(name, script string, grace int64) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.Containers[0].Command = []string{"sh", "-c", script}
	pod.Spec.TerminationGracePeriodSeconds = &grace
	return pod
}

// TestGracefulNodeShutdown announces a shutdown of the machine and then cancels it. The kubelet delays the shutdown
// until the pods are stopped, from the lowest priority up and each group within its time; meanwhile the node is not
// Ready and rejects pods. Static pods and those of DaemonSets do not get a final phase: they are started again after
// the cancellation.
func TestGracefulNodeShutdown(t *testing.T) {
	s := spaceForRestart(t)
	logind := startLogind(t, longestShutdown)
	s.restartKubelet(gracefulShutdown)
	s.lock(logind, 1, true)
	want := []string{"shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"}
	if got := logind.Requests()[0]; !slices.Equal(got, want) {
		t.Errorf("the kubelet requested the lock %q, want %q", got, want)
	}
	s.writeManifest(podThat("static", endsAtOnce, 30))
	daemon, made := s.daemon(podThat("daemon", endsAtOnce, 30))
	staying := []*v1.Pod{s.mirror("static", kit.Ready), daemon}
	s.priorityClass("important-"+s.name, important)
	urgent := podThat("urgent", endsAtOnce, 30)
	urgent.Spec.PriorityClassName = "important-" + s.name
	// As in the upstream suite: no owner, restart policy Always, and an annotation like that of a static pod. It is
	// Failed.
	ignores := podThat("ignores-sigterm", neverEnds, 5)
	ignores.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	ignores.Spec.RestartPolicy = v1.RestartPolicyAlways
	for _, pod := range []*v1.Pod{podThat("exits", endsAfter3s, 30), ignores, urgent} {
		s.ready(pod)
	}

	began := time.Now()
	s.must(logind.PrepareForShutdown(true))
	s.eventually(time.Minute, func(ctx context.Context) error { return shuttingDown(ctx, s) })
	late := s.wait(s.create(kit.Bound(kit.IdlePod("late"))), podTimeout, endedFor("NodeShutdown"))
	if !strings.HasSuffix(late.Status.Message, "Pod was rejected as the node is shutting down.") {
		t.Errorf("late pod: %s", kit.Describe(late))
	}
	s.lock(logind, 1, false)
	if took := time.Since(began); took > longestShutdown {
		t.Errorf("the lock was held for %v, want at most %v", took, longestShutdown)
	}
	s.stoppedInOrder("ignores-sigterm", "exits", "urgent")
	s.stoppedWithoutFinalPhase(staying...)

	s.must(logind.PrepareForShutdown(false))
	s.locksRequested(logind, 2)
	s.nodeReady()
	s.ready(kit.Bound(kit.IdlePod("welcome")))
	s.startedAgain(staying...)
	s.lock(logind, 2, true)
	if again := made(); len(again) > 0 {
		t.Errorf("the DaemonSet has made %d more pods", len(again))
	}
	for _, name := range []string{"exits", "ignores-sigterm", "urgent"} {
		if phase := s.get(name).Status.Phase; phase != v1.PodFailed && phase != v1.PodSucceeded {
			t.Errorf("pod %s is %s after the shutdown", name, phase)
		}
	}
}

// TestKubeletStartedDuringShutdown stops the kubelet and announces a shutdown before the next kubelet is started. That
// one stops the pods that still run, and rejects new ones. After the boot static pods and those of DaemonSets are
// started again.
func TestKubeletStartedDuringShutdown(t *testing.T) {
	s := spaceForRestart(t)
	logind := startLogind(t, longestShutdown)
	s.restartKubelet(gracefulShutdown)
	s.lock(logind, 1, true)
	s.writeManifest(podThat("static", endsAtOnce, 30))
	daemon, made := s.daemon(podThat("daemon", endsAtOnce, 30))
	staying := []*v1.Pod{s.mirror("static", kit.Ready), daemon}
	s.ready(podThat("exits", endsAtOnce, 30))
	s.must(node.StopKubelet(s.ctx))
	s.must(logind.PrepareForShutdown(true))
	s.must(node.ReviveKubelet()) // does not wait for a Ready node, as StartKubelet does
	s.eventually(podTimeout, func(ctx context.Context) error { return shuttingDown(ctx, s) })
	s.stoppedInOrder("exits")
	s.stoppedWithoutFinalPhase(staying...)
	s.wait(s.create(kit.Bound(kit.IdlePod("late"))), podTimeout, endedFor("NodeShutdown"))

	s.must(node.StopKubelet(s.ctx))
	logind.Boot()
	s.must(node.StartKubelet(s.ctx, gracefulShutdown))
	s.lock(logind, 2, true)
	s.startedAgain(staying...)
	if again := made(); len(again) > 0 {
		t.Errorf("the DaemonSet has made %d more pods", len(again))
	}
}

// TestStoppedKubeletStopsNoPod stops the kubelet without a shutdown of the machine.
func TestStoppedKubeletStopsNoPod(t *testing.T) {
	s := spaceForRestart(t)
	logind := startLogind(t, longestShutdown)
	s.restartKubelet(gracefulShutdown)
	s.lock(logind, 1, true)
	s.ready(podThat("exits", endsAtOnce, 30))
	before := s.fingerprint()
	s.must(node.StopKubelet(s.ctx))
	s.lock(logind, 1, false)
	s.must(node.StartKubelet(s.ctx, gracefulShutdown))
	s.must(s.sameAs(before))
}

func (s *space) priorityClass(name string, value int32) {
	s.t.Helper()
	classes := s.client.SchedulingV1().PriorityClasses()
	class := &schedulingv1.PriorityClass{
		// No test is about preemption by the scheduler.
		ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: new(v1.PreemptNever),
	}
	_, err := classes.Create(s.ctx, class, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		if err := classes.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
}

// daemon creates a DaemonSet with that pod and returns the pod when it is Ready. Function made returns the pods that
// the controller has created since then.
func (s *space) daemon(pod *v1.Pod) (ready *v1.Pod, made func() []types.UID) {
	s.t.Helper()
	template := appTemplate()
	template.Spec = pod.Spec
	template.Spec.RestartPolicy = v1.RestartPolicyAlways
	_, err := s.client.AppsV1().DaemonSets(s.name).Create(s.ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec:       appsv1.DaemonSetSpec{Selector: appSelector(), Template: template},
	}, metav1.CreateOptions{})
	s.must(err)
	label := metav1.FormatLabelSelector(appSelector())
	s.eventually(podTimeout, func(ctx context.Context) error {
		list, err := s.client.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{LabelSelector: label})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("the DaemonSet has %d pods", len(list.Items))
		}
		if err == nil {
			ready = &list.Items[0]
		}
		return err
	})
	return s.wait(ready, podTimeout, kit.Ready), s.countPods(label)
}

// nodeReady waits until the node is Ready.
func (s *space) nodeReady() {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := kit.Node(ctx, s.client)
		if err == nil && kit.NodeCondition(got, v1.NodeReady).Status != v1.ConditionTrue {
			err = errors.New("the node is not Ready")
		}
		return err
	})
}

// stoppedWithoutFinalPhase waits until the containers of the pods have ended, and checks that no pod has a final phase.
func (s *space) stoppedWithoutFinalPhase(pods ...*v1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		pod = s.wait(pod, podTimeout, func(pod *v1.Pod) error {
			if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Terminated == nil {
				return errors.New("not stopped: " + kit.Describe(pod))
			}
			return nil
		})
		ready, target := kit.ConditionStatus(pod, v1.PodReady), kit.ConditionStatus(pod, v1.DisruptionTarget)
		phase, reason := pod.Status.Phase, pod.Status.Reason
		if phase != v1.PodRunning || reason != "" || ready != v1.ConditionFalse || target == v1.ConditionTrue {
			s.t.Errorf("%s: Ready is %s, DisruptionTarget %s", kit.Describe(pod), ready, target)
		}
	}
}

// startedAgain waits until the same pods are Ready, and checks that their containers were restarted.
func (s *space) startedAgain(pods ...*v1.Pod) {
	s.t.Helper()
	for _, before := range pods {
		pod := s.wait(before, podTimeout, readyAgain)
		restarts, were := pod.Status.ContainerStatuses[0].RestartCount, before.Status.ContainerStatuses[0].RestartCount
		if pod.UID != before.UID || restarts <= were {
			s.t.Errorf("%s: UID %s, was %s; %d restarts, were %d", kit.Describe(pod), pod.UID, before.UID, restarts, were)
		}
	}
}

// readyAgain is kit.Ready for a pod that may have ended before.
func readyAgain(pod *v1.Pod) error {
	if kit.ConditionStatus(pod, v1.PodReady) != v1.ConditionTrue {
		return errors.New("not Ready again: " + kit.Describe(pod))
	}
	return nil
}

// shuttingDown is nil if the Ready condition of the node reports the shutdown.
func shuttingDown(ctx context.Context, s *space) error {
	got, err := kit.Node(ctx, s.client)
	if err != nil {
		return err
	}
	ready := kit.NodeCondition(got, v1.NodeReady)
	if ready.Status == v1.ConditionFalse && strings.Contains(ready.Message, "node is shutting down") {
		return nil
	}
	return fmt.Errorf("Ready is %s: %s", ready.Status, ready.Message)
}

// stoppedInOrder waits until the pods have stopped, and checks that the last named one stopped after all others. Pods
// that exited in time have succeeded, and only the pod called ignores-sigterm has failed.
func (s *space) stoppedInOrder(names ...string) {
	s.t.Helper()
	var last time.Time
	for i, name := range names {
		pod := s.wait(s.get(name), podTimeout, func(pod *v1.Pod) error {
			if pod.Status.Phase != v1.PodFailed && pod.Status.Phase != v1.PodSucceeded {
				return errors.New("not ended: " + kit.Describe(pod))
			}
			return nil
		})
		status := pod.Status
		failed := status.Phase == v1.PodFailed && status.Reason == "Terminated" && status.Message == shutdownMessage
		succeeded := status.Phase == v1.PodSucceeded && status.Reason == ""
		if failed != (name == "ignores-sigterm") || succeeded == failed {
			s.t.Errorf("pod %s: %s", name, kit.Describe(pod))
		}
		if kit.ConditionStatus(pod, v1.DisruptionTarget) != v1.ConditionTrue {
			s.t.Errorf("pod %s has no condition DisruptionTarget", name)
		}
		ended := pod.Status.ContainerStatuses[0].State.Terminated
		if ended == nil {
			s.t.Errorf("pod %s: its container has not ended: %s", name, kit.Describe(pod))
			continue
		}
		if i == len(names)-1 && ended.FinishedAt.Time.Before(last) {
			s.t.Errorf("pod %s ended at %v, before the others of lower priority at %v", name, ended.FinishedAt, last)
		}
		last = later(last, ended.FinishedAt.Time)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
